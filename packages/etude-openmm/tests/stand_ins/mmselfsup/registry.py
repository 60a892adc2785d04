"""The registries of MMSelfSup: children of MMEngine's."""

from __future__ import annotations

import mmengine.registry as roots
from mmengine.registry import Registry

DATASETS = Registry("dataset", parent=roots.DATASETS, scope="mmselfsup")
HOOKS = Registry("hook", parent=roots.HOOKS, scope="mmselfsup")
METRICS = Registry("metric", parent=roots.METRICS, scope="mmselfsup")
MODELS = Registry("model", parent=roots.MODELS, scope="mmselfsup")
OPTIM_WRAPPER_CONSTRUCTORS = Registry(
    "optim wrapper constructor", parent=roots.OPTIM_WRAPPER_CONSTRUCTORS, scope="mmselfsup"
)
OPTIMIZERS = Registry("optimizer", parent=roots.OPTIMIZERS, scope="mmselfsup")
PARAM_SCHEDULERS = Registry("parameter scheduler", parent=roots.PARAM_SCHEDULERS, scope="mmselfsup")
TRANSFORMS = Registry("transform", parent=roots.TRANSFORMS, scope="mmselfsup")
