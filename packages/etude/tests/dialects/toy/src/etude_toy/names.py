"""The import names of the Toy engine."""

MODULES = {"toyengine": {}, "toyengine.hooks": {"Counter": "etude_toy.hooks:Counter"}}
OUT_OF_SCOPE = {"toyengine.cluster": "Étude has its own launcher"}
ENGINE = ("toyengine",)
MARKS = {"toyengine": ("__init__.py", "hooks.py")}
