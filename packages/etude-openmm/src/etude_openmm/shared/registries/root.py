"""The root registries of MMEngine (scope ``mmengine``), and their build functions.

Other modules fill the registries with ``Registry.add_lazy``.
"""

from __future__ import annotations

import datetime
import inspect
import json
import os
from typing import Any

from etude.registry import resolve
from etude_openmm.shared.errors import ConfigAssertionError
from etude_openmm.shared.logging import print_log
from etude_openmm.shared.registries.registry_v2 import Registry, build_from_cfg, plain

#: Imported only when a list of models is built, because it needs torch and these registries.
_SEQUENTIAL = "etude_openmm.shared.init.module_v2:Sequential"


def build_runner_from_cfg(cfg: Any, registry: Registry) -> Any:
    """Build a runner with ``from_cfg`` of the class ``runner_type`` (default ``Runner``)."""
    inner = plain(cfg)
    if inner is None:
        raise ConfigAssertionError(f"cfg should be a dict, ConfigDict or Config, but got {type(cfg)}")
    if not isinstance(registry, Registry):
        raise ConfigAssertionError(f"registry must be a mmengine.Registry object, but got {type(registry)}")
    with registry.switch_scope_and_registry(inner.get("_scope_")) as found_in:
        return found_in.entry(inner.get("runner_type", "Runner")).from_cfg(cfg)


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build a model, or a ``Sequential`` from a list of configs."""
    if isinstance(cfg, list):
        return resolve(_SEQUENTIAL)(*[build_from_cfg(one, registry, default_args) for one in cfg])
    return build_from_cfg(cfg, registry, default_args)


def build_optimizer_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build an optimizer. A name that is not registered is looked up in ``torch.optim``."""
    inner = plain(cfg)
    kind = inner.get("type") if inner is not None else None
    if inner is not None and isinstance(kind, str) and "." not in kind and registry.get(kind) is None:
        found = _torch_optimizer(kind)
        if found is not None:
            return build_from_cfg({**inner, "type": found}, registry, default_args)
    return build_from_cfg(cfg, registry, default_args)


def _torch_optimizer(name: str) -> Any:
    import torch

    found = getattr(torch.optim, "Adafactor" if name == "TorchAdafactor" else name, None)
    return found if inspect.isclass(found) and issubclass(found, torch.optim.Optimizer) else None


def build_scheduler_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build a scheduler. ``convert_to_iter_based`` converts its epochs to iterations with ``epoch_length``."""
    inner = plain(cfg)
    if inner is None:
        raise ConfigAssertionError(f"cfg should be a dict, ConfigDict or Config, but got {type(cfg)}")
    args: dict[str, Any] = {**(plain(default_args) or {}), **inner}
    with registry.switch_scope_and_registry(args.pop("_scope_", None)) as found_in:
        if not args.pop("convert_to_iter_based", False):
            args.pop("epoch_length", None)
            return build_from_cfg(args, found_in)
        kind = args.pop("type")
        if not args.get("by_epoch", True):
            raise AssertionError(
                "Only epoch-based parameter scheduler can be converted to iter-based: set `by_epoch=True`"
            )
        return found_in.entry(kind).build_iter_from_epoch(**args)


def traverse_registry_tree(registry: Registry, verbose: bool = True) -> list[dict[str, Any]]:
    """Return the number of entries of each registry in the tree, from the root down, and their packages."""
    infos = list(_walk(registry.root))
    if verbose:
        for info in infos:
            print_log(f"Find {info['num_modules']} modules in {info['scope']}'s '{registry.name}' registry", "current")
    return infos


def _walk(registry: Registry) -> list[dict[str, Any]]:
    entries = registry.module_dict
    infos: list[dict[str, Any]] = [{"num_modules": len(entries), "scope": registry.scope}]
    for name, entry in entries.items():
        infos[0].setdefault(_folder_of(entry), []).append(name)
    for child in registry.children.values():
        infos.extend(_walk(child))
    return infos


def _folder_of(entry: Any) -> str:
    """Return the package of an entry as a path."""
    return "/".join((getattr(entry, "__module__", None) or "").split(".")[:-1])


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

#: All root registries by their name in ``mmengine.registry``.
ROOTS: dict[str, Registry] = {name: value for name, value in globals().items() if isinstance(value, Registry)}

WEIGHT_INITIALIZERS.add_lazy(
    {
        name: f"mmengine.model.weight_init:{name}Init"
        for name in ("Constant", "Xavier", "Normal", "TruncNormal", "Uniform", "Kaiming", "Caffe2Xavier")
    }
)
WEIGHT_INITIALIZERS.add_lazy({"Pretrained": "mmengine.model.weight_init:PretrainedInit"})
for _name in ("Sequential", "ModuleList", "ModuleDict"):
    MODELS.add_lazy({_name: f"etude_openmm.shared.init.module_v2:{_name}"})


def count_registered_modules(save_path: str | None = None, verbose: bool = True) -> dict[str, Any]:
    """Return statistics of all root registries; with ``save_path`` write ``modules_statistic_results.json``, too."""
    result: dict[str, Any] = {
        "scan_date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
        "registries": {name: traverse_registry_tree(registry, verbose) for name, registry in ROOTS.items()},
    }
    if verbose:
        print(f"Finish registry analysis, got: {result}")
    if save_path is not None:
        with open(os.path.join(save_path, "modules_statistic_results.json"), "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    return result
