"""The root registries of MMEngine (scope ``mmengine``). Parts of the dialect fill them; see ``Registry.add_lazy``."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from typing import Any

from etude.dialects.openmm.registries.build_functions import (
    build_model_from_cfg,
    build_optimizer_from_cfg,
    build_runner_from_cfg,
    build_scheduler_from_cfg,
    traverse_registry_tree,
)
from etude.dialects.openmm.registries.registry_v2 import Registry

SCOPE = "mmengine"

RUNNERS = Registry("runner", build_func=build_runner_from_cfg, scope=SCOPE)
RUNNER_CONSTRUCTORS = Registry("runner constructor", scope=SCOPE)
LOOPS = Registry("loop", scope=SCOPE)
HOOKS = Registry("hook", scope=SCOPE)
STRATEGIES = Registry("strategy", scope=SCOPE)
DATASETS = Registry("dataset", scope=SCOPE)
DATA_SAMPLERS = Registry("data sampler", scope=SCOPE)
TRANSFORMS = Registry("transform", scope=SCOPE)
MODELS = Registry("model", build_model_from_cfg, scope=SCOPE)
MODEL_WRAPPERS = Registry("model_wrapper", scope=SCOPE)
WEIGHT_INITIALIZERS = Registry("weight initializer", scope=SCOPE)
OPTIMIZERS = Registry("optimizer", build_func=build_optimizer_from_cfg, scope=SCOPE)
OPTIM_WRAPPERS = Registry("optim_wrapper", scope=SCOPE)
OPTIM_WRAPPER_CONSTRUCTORS = Registry("optimizer wrapper constructor", scope=SCOPE)
PARAM_SCHEDULERS = Registry("parameter scheduler", build_func=build_scheduler_from_cfg, scope=SCOPE)
METRICS = Registry("metric", scope=SCOPE)
EVALUATOR = Registry("evaluator", scope=SCOPE)
TASK_UTILS = Registry("task util", scope=SCOPE)
VISUALIZERS = Registry("visualizer", scope=SCOPE)
VISBACKENDS = Registry("vis_backend", scope=SCOPE)
LOG_PROCESSORS = Registry("log_processor", scope=SCOPE)
INFERENCERS = Registry("inferencer", scope=SCOPE)
FUNCTIONS = Registry("function", scope=SCOPE)

#: Every one of them by the name it has in ``mmengine.registry``.
ROOTS: dict[str, Registry] = {name: value for name, value in globals().items() if isinstance(value, Registry)}

WEIGHT_INITIALIZERS.add_lazy(
    {
        name: f"etude.dialects.openmm.init.rules:{name}Init"
        for name in ("Constant", "Xavier", "Normal", "TruncNormal", "Uniform", "Kaiming", "Caffe2Xavier")
    }
)
WEIGHT_INITIALIZERS.add_lazy({"Pretrained": "etude.dialects.openmm.init.init_v2:PretrainedInit"})
for _name in ("Sequential", "ModuleList", "ModuleDict"):
    MODELS.add_lazy({_name: f"etude.dialects.openmm.init.module_v2:{_name}"})


def count_registered_modules(save_path: str | None = None, verbose: bool = True) -> dict[str, Any]:
    """Return what every root registry holds; with ``save_path`` also as ``modules_statistic_results.json`` there."""
    result: dict[str, Any] = {
        "scan_date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
        "registries": _infos(ROOTS, verbose),
    }
    if verbose:
        print(f"Finish registry analysis, got: {result}")
    if save_path is not None:
        with open(os.path.join(save_path, "modules_statistic_results.json"), "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    return result


def _infos(roots: Mapping[str, Registry], verbose: bool) -> dict[str, Any]:
    return {name: traverse_registry_tree(registry, verbose) for name, registry in roots.items()}
