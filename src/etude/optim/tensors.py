"""What optimizers of ours share: tensors in lists that one kernel can take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def with_grads(group: dict[str, Any]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Parameters of ``group`` that have a gradient, and the gradients; a pair of lists per device and type."""
    lists: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            raise RuntimeError("sparse gradients are not supported; use torch.optim.SparseAdam")
        params, grads = lists.setdefault((parameter.device, parameter.dtype), ([], []))
        params.append(parameter)
        grads.append(parameter.grad)
    return iter(lists.values())


def norms(tensors: list[Tensor]) -> Tensor:
    """The L2 norm of each tensor, as one vector. Nothing is read by Python."""
    return torch.stack(torch._foreach_norm(tensors))


def non_negative(**values: float) -> None:
    for name, value in values.items():
        if isinstance(value, int | float) and value < 0.0:
            raise ValueError(f"{name} is {value}; it must not be negative")
