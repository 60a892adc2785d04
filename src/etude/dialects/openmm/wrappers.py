"""Modules that wrap another one (``DataParallel``, ``DistributedDataParallel``, a dialect's own)."""

from __future__ import annotations

from typing import Any

from torch import nn

from etude.dialects.openmm.registries.root import MODEL_WRAPPERS

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
