"""MMEngine's runner, loops, hooks and other parts of training. Importing it fills the registries.

Their leaves (schedules, datasets, files …) come from the installed ``mmengine``, so its name must be served first.
"""

from etude.dialects import imports

imports.install()

from etude_openmm.mmengine.live import registry  # noqa: E402, F401
