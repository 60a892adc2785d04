"""MMEngine's root registries, filled with the names of what the dialect brings; each is imported when asked for."""

from __future__ import annotations

from etude.dialects.mmengine import names
from etude.dialects.openmm.registries.root import (
    DATA_SAMPLERS,
    DATASETS,
    EVALUATOR,
    FUNCTIONS,
    HOOKS,
    INFERENCERS,
    LOG_PROCESSORS,
    LOOPS,
    METRICS,
    MODEL_WRAPPERS,
    MODELS,
    OPTIM_WRAPPER_CONSTRUCTORS,
    OPTIM_WRAPPERS,
    OPTIMIZERS,
    PARAM_SCHEDULERS,
    ROOTS,
    RUNNER_CONSTRUCTORS,
    RUNNERS,
    STRATEGIES,
    TASK_UTILS,
    TRANSFORMS,
    VISBACKENDS,
    VISUALIZERS,
    WEIGHT_INITIALIZERS,
)

__all__ = [
    "DATASETS", "DATA_SAMPLERS", "EVALUATOR", "FUNCTIONS", "HOOKS", "INFERENCERS", "LOG_PROCESSORS", "LOOPS",
    "METRICS", "MODELS", "MODEL_WRAPPERS", "OPTIMIZERS", "OPTIM_WRAPPERS", "OPTIM_WRAPPER_CONSTRUCTORS",
    "PARAM_SCHEDULERS", "ROOTS", "RUNNERS", "RUNNER_CONSTRUCTORS", "STRATEGIES", "TASK_UTILS", "TRANSFORMS",
    "VISBACKENDS", "VISUALIZERS", "WEIGHT_INITIALIZERS",
]  # fmt: skip

for _name, _entries in names.REGISTERED.items():
    ROOTS[_name].add_lazy(_entries)
