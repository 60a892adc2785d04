"""MMEngine's runner, loops, hooks and other parts of training. Importing it fills the registries."""

from etude_openmm.mmengine.live import registry  # noqa: F401
