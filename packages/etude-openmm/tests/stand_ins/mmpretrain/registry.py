"""The registries of MMPretrain: children of MMEngine's."""

from __future__ import annotations

import mmengine.registry as roots
from mmengine.registry import Registry

DATASETS = Registry("dataset", parent=roots.DATASETS, scope="mmpretrain")
HOOKS = Registry("hook", parent=roots.HOOKS, scope="mmpretrain")
METRICS = Registry("metric", parent=roots.METRICS, scope="mmpretrain")
MODELS = Registry("model", parent=roots.MODELS, scope="mmpretrain")
OPTIM_WRAPPER_CONSTRUCTORS = Registry(
    "optim wrapper constructor", parent=roots.OPTIM_WRAPPER_CONSTRUCTORS, scope="mmpretrain"
)
OPTIMIZERS = Registry("optimizer", parent=roots.OPTIMIZERS, scope="mmpretrain")
PARAM_SCHEDULERS = Registry("parameter scheduler", parent=roots.PARAM_SCHEDULERS, scope="mmpretrain")
TRANSFORMS = Registry("transform", parent=roots.TRANSFORMS, scope="mmpretrain")
