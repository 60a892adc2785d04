"""MMEngine's root registries, filled with the names of what the dialect brings; each is imported when asked for."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

from etude.dialects.mmengine import names
from etude.dialects.openmm.registries.registry_v2 import Registry
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


def __getattr__(name: str) -> SimpleNamespace:
    """Return the registries of the project ``name``: ``registry.mmselfsup.MODELS``."""
    if name not in names.PROJECTS:
        raise AttributeError(name)
    return _project(name)


@cache
def _project(scope: str) -> SimpleNamespace:
    """Make the registries of a project: children of the root ones, with what the project registers.

    This adds its scope to the tree, so it waits until one of them is asked for.
    """
    roots = {name: root for name, root in ROOTS.items() if name not in ("FUNCTIONS", "INFERENCERS", "STRATEGIES")}
    made = {name: Registry(root.name, parent=root, scope=scope) for name, root in roots.items()}
    for name, entries in names.PROJECTS[scope].items():
        made[name].add_lazy(entries)
    return SimpleNamespace(**made)
