"""Applies an ``init_cfg`` to a module: one or several rules, and ``override`` for named parts. Both dialects."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from etude.dialects.openmm.errors import ConfigRuntimeError, ConfigTypeError, ConfigValueError

#: Makes the initialiser that a config describes.
Make = Callable[[dict[str, Any]], Any]


def apply_init_cfg(module: nn.Module, init_cfg: Any, make: Make) -> None:
    """Apply every rule of ``init_cfg`` in turn."""
    if not isinstance(init_cfg, dict | list):
        raise ConfigTypeError(f"init_cfg must be a dict or a list of dict, but got {type(init_cfg)}")
    for rule in [init_cfg] if isinstance(init_cfg, dict) else init_cfg:
        outer = copy.deepcopy(rule)
        override = outer.pop("override", None)
        _apply(module, outer, make, whole=False)
        if override is not None:
            outer.pop("layer", None)
            _apply_override(module, override, outer, make)


def _apply(module: nn.Module, rule: dict[str, Any], make: Make, *, whole: bool) -> None:
    initialiser = make(rule)
    initialiser.wholemodule = whole
    initialiser(module)


def _apply_override(module: nn.Module, override: Any, outer: dict[str, Any], make: Make) -> None:
    if not isinstance(override, dict | list):
        raise ConfigTypeError(f"override must be a dict or a list of dict, but got {type(override)}")
    for one in [override] if isinstance(override, dict) else override:
        rule = copy.deepcopy(one)
        name = rule.pop("name", None)
        if name is None:
            raise ConfigValueError(f'`override` must contain the key "name", but got {rule}')
        if not rule:
            rule.update(outer)
        elif "type" not in rule:
            raise ConfigValueError(f'`override` need "type" key, but got {rule}')
        if not hasattr(module, name):
            raise ConfigRuntimeError(
                f"module did not have attribute {name}, but init_cfg is {rule}.",
                hint=f"it has: {', '.join(child for child, _ in module.named_children())}",
            )
        _apply(getattr(module, name), rule, make, whole=True)
