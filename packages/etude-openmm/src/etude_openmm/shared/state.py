"""State dicts into modules and out of them, through wrappers such as DDP: what fits is loaded, the rest reported."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from etude_openmm.shared.registries.root import MODEL_WRAPPERS


@dataclass
class Mismatch:
    """What did not fit: keys that one side lacks, and errors such as another shape."""

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.errors)

    def __str__(self) -> str:
        lines = ["The model and loaded state dict do not match exactly\n", *self.errors]
        if self.unexpected:
            lines.append(f"unexpected key in source state_dict: {', '.join(self.unexpected)}\n")
        if self.missing:
            lines.append(f"missing keys in source state_dict: {', '.join(self.missing)}\n")
        return "\n".join(lines)


def load_fitting(module: nn.Module, state_dict: Any) -> Mismatch:
    """Copy what fits into ``module``, through wrappers; returns what did not."""
    found = Mismatch()
    metadata = getattr(state_dict, "_metadata", None)
    state = OrderedDict(state_dict)
    if metadata is not None:
        state._metadata = metadata  # type: ignore[attr-defined]
    _load(module, state, metadata, "", found)
    # As in the originals, these counters may be missing.
    found.missing = [key for key in found.missing if "num_batches_tracked" not in key]
    return found


def _load(module: Any, state: Any, metadata: Any, prefix: str, found: Mismatch) -> None:
    if is_wrapper(module) or _is_for_tests(module):
        module = module.module
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    # Not load_state_dict, which raises for a wrong shape even if not strict; the originals load the rest.
    module._load_from_state_dict(state, prefix, local, True, found.missing, found.unexpected, found.errors)
    for name, child in module._modules.items():
        if child is not None:
            _load(child, state, metadata, f"{prefix}{name}.", found)
    hooks = getattr(module, "_load_state_dict_post_hooks", {})
    if hooks:
        incompatible = nn.modules.module._IncompatibleKeys(found.missing, found.unexpected)
        for hook in hooks.values():
            if hook(module, incompatible) is not None:
                raise AssertionError("hooks registered with `register_load_state_dict_post_hook` return nothing")


def _is_for_tests(module: Any) -> bool:
    """Return whether ``module`` is a ``BaseTTAModel`` of the installed mmengine, which holds the model itself."""
    loaded = sys.modules.get("mmengine.model.test_time_aug")
    return loaded is not None and isinstance(module, loaded.BaseTTAModel)


def get_state_dict(module: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
    """Return the state dict of ``module`` as torch makes it, with wrappers at any level left out."""
    return _state_dict(module, destination, prefix, keep_vars, _save)


def get_state_dict_v1(module: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
    """Return the same as mmcv 1.x makes it: also with buffers that torch would not save."""
    return _state_dict(module, destination, prefix, keep_vars, _save_v1)


def _state_dict(module: Any, destination: Any, prefix: str, keep_vars: bool, save: Callable[..., None]) -> Any:
    if is_wrapper(module):
        module = module.module
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    destination._metadata[prefix[:-1]] = {"version": module._version}
    save(module, destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            _state_dict(child, destination, f"{prefix}{name}.", keep_vars, save)
    for hook in module._state_dict_hooks.values():
        replaced = hook(module, destination, prefix, destination._metadata[prefix[:-1]])
        destination = replaced if replaced is not None else destination
    return destination


def _save(module: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
    module._save_to_state_dict(destination, prefix, keep_vars)


def _save_v1(module: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
    tensors = [*module._parameters.items(), *module._buffers.items()]
    for name, tensor in tensors:
        if tensor is not None:
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
    extra = getattr(type(module), "get_extra_state", nn.Module.get_extra_state)
    if extra is not nn.Module.get_extra_state:
        destination[f"{prefix}_extra_state"] = module.get_extra_state()


def weights_to_cpu(state_dict: Any) -> Any:
    """Return the same state dict with its tensors on the CPU."""
    moved: Any = OrderedDict(
        (key, value.cpu() if isinstance(value, torch.Tensor) else value) for key, value in state_dict.items()
    )
    moved._metadata = getattr(state_dict, "_metadata", OrderedDict())
    return moved


_CLASSES: list[type] = [nn.DataParallel, nn.parallel.DistributedDataParallel]
_REGISTRIES: list[Any] = [MODEL_WRAPPERS]


def add_wrapper(cls: type) -> None:
    """Count instances of ``cls`` as wrappers."""
    _CLASSES.append(cls)


def add_registry(registry: Any) -> None:
    """Count instances of every class in ``registry`` as wrappers."""
    _REGISTRIES.append(registry)


def is_wrapper(module: Any) -> bool:
    """Return whether ``module`` is a wrapper, whose ``.module`` is the model that users wrote."""
    return isinstance(module, tuple(_CLASSES)) or any(_registered(module, one) for one in _REGISTRIES)


def unwrapped(module: Any) -> Any:
    """Return what is inside all wrappers."""
    while is_wrapper(module):
        module = module.module
    return module


def _registered(module: Any, registry: Any) -> bool:
    classes = tuple(entry for entry in registry._module_dict.values() if isinstance(entry, type))
    return isinstance(module, classes) or any(_registered(module, child) for child in registry.children.values())
