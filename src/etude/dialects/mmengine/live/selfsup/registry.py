"""MMSelfSup's registries: children of MMEngine's with the scope ``mmselfsup``."""

from __future__ import annotations

from etude.dialects.mmengine.live import registry as root
from etude.dialects.mmengine.live.selfsup.entries import REGISTERED
from etude.dialects.openmm.registries.registry_v2 import Registry


def _child(name: str) -> Registry:
    parent: Registry = getattr(root, name)
    made = Registry(parent.name, parent=parent, scope="mmselfsup")
    made.add_lazy(REGISTERED.get(name, {}))
    return made


RUNNERS = _child("RUNNERS")
RUNNER_CONSTRUCTORS = _child("RUNNER_CONSTRUCTORS")
LOOPS = _child("LOOPS")
HOOKS = _child("HOOKS")
DATASETS = _child("DATASETS")
DATA_SAMPLERS = _child("DATA_SAMPLERS")
TRANSFORMS = _child("TRANSFORMS")
MODELS = _child("MODELS")
MODEL_WRAPPERS = _child("MODEL_WRAPPERS")
WEIGHT_INITIALIZERS = _child("WEIGHT_INITIALIZERS")
OPTIMIZERS = _child("OPTIMIZERS")
OPTIM_WRAPPERS = _child("OPTIM_WRAPPERS")
OPTIM_WRAPPER_CONSTRUCTORS = _child("OPTIM_WRAPPER_CONSTRUCTORS")
PARAM_SCHEDULERS = _child("PARAM_SCHEDULERS")
METRICS = _child("METRICS")
EVALUATOR = _child("EVALUATOR")
TASK_UTILS = _child("TASK_UTILS")
VISUALIZERS = _child("VISUALIZERS")
VISBACKENDS = _child("VISBACKENDS")
LOG_PROCESSORS = _child("LOG_PROCESSORS")
