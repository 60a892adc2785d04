"""The fused kernels of Adam, where torch has them and the config did not say otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})
_WAYS = ("fused", "foreach", "capturable", "differentiable")


def use_fused(optim_wrapper: Any) -> None:
    """Let the Adam or AdamW inside ``optim_wrapper`` update all parameters in one kernel; same numbers, less time."""
    wrappers = optim_wrapper.values() if hasattr(optim_wrapper, "values") else [optim_wrapper]
    for wrapper in wrappers:
        optimizer: Any = getattr(wrapper, "optimizer", None)
        if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and _can(optimizer.param_groups):
            for group in optimizer.param_groups:
                group["fused"] = True


def _can(groups: list[dict[str, Any]]) -> bool:
    if any(group.get(way) for group in groups for way in _WAYS):
        return False
    if any(group.get("foreach") is not None or isinstance(group["lr"], torch.Tensor) for group in groups):
        return False
    params = [param for group in groups for param in group["params"]]
    kinds = {param.device.type for param in params}
    plain = all(type(param) is nn.Parameter and param.is_floating_point() for param in params)
    return plain and len(kinds) == 1 and kinds <= _DEVICES
