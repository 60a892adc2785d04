"""Makes the JSON Schema of mmcv 1.x configs: keys of the train scripts, and arguments of the classes they can name.

Classes and their arguments are read from the sources behind the registries, so the schema is always up to date. A
config may hold more at its top (user-defined variables) and may name user-defined classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from etude.config.tree import Tree
from etude_openmm.mmcv1 import listing, names
from etude_openmm.mmcv1.listing import KEYS
from etude_openmm.mmcv1.lower import RULES
from etude_openmm.mmcv1.projects import project_of, registered_by
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.checks.schemas import DIALECT, FLAG, TEXT, Components, Own, markdown

#: Arguments that configs do not contain.
_GIVEN = ("params", "model", "dataloader", "optimizer", "runner", "batch_processor", "logger", "meta", "work_dir")
#: Types of some arguments, where annotations are too vague.
_TYPES = KEYS.schemas("arguments")
_MODEL_PARTS = {"properties": {part: {"$ref": "#/$defs/PARTS"} for part in ("backbone", "neck", "head", "detector")}}


def keys() -> dict[str, tuple[dict[str, Any], str]]:
    """Map key → its schema and a description."""
    return KEYS.keys({hook: _hook(hook, fields) for hook, fields in KEYS.read["hooks"].items()})


def _hook(name: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a key that configures a hook: the arguments of its class and those of ``keys.json``."""
    found = Components(Own(), _GIVEN, _TYPES).arguments(names.MODULES["mmcv.runner"][name])
    assert found is not None
    arguments, required, *_ = found
    made = KEYS.schema(shape)
    made["properties"] = {**arguments, **made["properties"], "_delete_": FLAG}
    return {**made, "required": required} if required else made


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """Return the schema (draft 2020-12); with ``tree``, including the classes that its modules register."""
    own = _user_classes(tree)
    classes = Components(own, _GIVEN, _TYPES)
    tables, known = listing.registries(), keys()
    model, text = known["model"]
    known["model"] = {"allOf": [model, *classes.cases(_models(own)), _MODEL_PARTS]}, text
    accumulating = {name: target for name, target in listing.HOOKS.items() if name.endswith("OptimizerHook")}
    beside = KEYS.schemas("beside optimizers")
    init = KEYS.schemas("beside initializers")
    return {
        "$schema": DIALECT,
        "title": "mmcv 1.x config",
        "type": "object",
        "properties": {key: {"description": text} for key, (_, text) in known.items()},
        "if": {"required": ["_base_"]},
        "then": {"description": "builds on other files, so anything may be left out"},
        "else": {"properties": {key: schema for key, (schema, _) in known.items()}},
        "$defs": {
            "HOOKS": _require_type(
                classes.schema({**listing.HOOKS, **own.table("HOOKS")}, beside=KEYS.schemas("beside hooks"))
            ),
            "OPTIMIZERS": _require_type(
                classes.schema({**tables["OPTIMIZERS"], **own.table("OPTIMIZERS")}, beside=beside)
            ),
            "OPTIMIZER_HOOKS": classes.schema(accumulating, default="OptimizerHook"),
            "RUNNERS": classes.schema(tables["RUNNERS"], default="EpochBasedRunner", beside={"constructor": TEXT}),
            "INITIALIZERS": _require_type(classes.schema(tables["INITIALIZERS"], beside=init)),
            "LR_POLICIES": _require_type(classes.schema(tables["lr_config policies"], word="policy"), "policy"),
            "MOMENTUM_POLICIES": _require_type(
                classes.schema(tables["momentum_config policies"], word="policy"), "policy"
            ),
            "PARTS": {"allOf": classes.cases(_models(own), whole=False)},
            "DATASETS": {"allOf": classes.cases(own.table("DATASETS"), whole=False)},
            "PIPELINES": {"allOf": classes.cases(own.table("PIPELINES"), whole=False)},
        },
    }


def _require_type(schema: dict[str, Any], word: str = "type") -> dict[str, Any]:
    return {**schema, "anyOf": [{"required": [word]}, {"required": ["type"]}]}


def _user_classes(tree: Tree | None) -> Own:
    """Return the classes that the modules of a config and its installed project register."""
    own = Own.of(tree, RULES)
    if tree is None:
        return own
    project = project_of(tree.values, tree.files, Lowering(tree).imports)
    return replace(own, registered={**(registered_by(project) if project else {}), **own.registered})


def _models(own: Own) -> dict[str, str]:
    """Return the models and their parts, whatever their registry is called."""
    others = ("HOOKS", "OPTIMIZERS", "RUNNERS", "DATASETS", "PIPELINES", "TRANSFORMS", "SAMPLERS")
    return {name: target for (table, name), target in own.registered.items() if table not in others}


def markdown_schema(tree: Tree | None = None) -> str:
    """Return the schema as Markdown: keys, then classes by registry with their arguments."""
    own, tables = _user_classes(tree), listing.registries()
    every = dict.fromkeys([*tables, *own.tables()])
    return markdown(
        "mmcv 1.x", keys(), {name: {**tables.get(name, {}), **own.table(name)} for name in every}, own, _GIVEN
    )
