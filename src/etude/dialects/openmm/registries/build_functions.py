"""The build functions of MMEngine's root registries that do more than call a class, and walks through the tree."""

from __future__ import annotations

import inspect
from typing import Any

from etude.dialects.openmm.errors import ConfigAssertionError, ConfigKeyError, ConfigTypeError
from etude.dialects.openmm.logging import print_log
from etude.dialects.openmm.registries.registry_v2 import Registry, build_from_cfg, plain
from etude.registry import resolve

#: Imported when a list of models is built: it needs torch, and the registries themselves.
_SEQUENTIAL = "etude.dialects.openmm.init.module_v2:Sequential"


def build_runner_from_cfg(cfg: Any, registry: Registry) -> Any:
    """A runner made by ``from_cfg`` of the class that ``runner_type`` names (default ``Runner``)."""
    inner = plain(cfg)
    if inner is None:
        raise ConfigAssertionError(f"cfg should be a dict, ConfigDict or Config, but got {type(cfg)}")
    if not isinstance(registry, Registry):
        raise ConfigAssertionError(f"registry must be a mmengine.Registry object, but got {type(registry)}")
    with registry.switch_scope_and_registry(inner.get("_scope_")) as found_in:
        kind = inner.get("runner_type", "Runner")
        runner = found_in.get(kind) if isinstance(kind, str) else kind
        if runner is None:
            raise ConfigKeyError(
                f"{kind} is not in the {found_in.name} registry. Please check whether the value of `{kind}` is correct",
                hint=found_in.hint(kind),
            )
        if not callable(runner):
            raise ConfigTypeError(f"runner_type must be a str or valid type, but got {type(kind)}")
        return runner.from_cfg(cfg)


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """A model; a list of configs becomes a ``Sequential`` of them."""
    if isinstance(cfg, list):
        return resolve(_SEQUENTIAL)(*[build_from_cfg(one, registry, default_args) for one in cfg])
    return build_from_cfg(cfg, registry, default_args)


def build_optimizer_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """An optimizer. Names of ``torch.optim`` are looked up there when they are not registered."""
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
    """A scheduler; with ``convert_to_iter_based`` its epochs become iterations by the given ``epoch_length``."""
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
        scheduler = found_in.get(kind) if isinstance(kind, str) else kind
        if scheduler is None:
            raise ConfigKeyError(f"{kind} is not in the {found_in.name} registry", hint=found_in.hint(kind))
        return scheduler.build_iter_from_epoch(**args)


def traverse_registry_tree(registry: Registry, verbose: bool = True) -> list[dict[str, Any]]:
    """Count the entries of each node of the tree, from the root down, and say where they are defined."""
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
    """The package of an entry, written as a path."""
    return "/".join((getattr(entry, "__module__", None) or "").split(".")[:-1])
