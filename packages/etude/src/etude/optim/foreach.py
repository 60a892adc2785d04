"""Shared code of Étude's optimizers: lists of tensors for one kernel call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

#: Numbers that stay in the cache of a CPU while everything is done with them that an update does.
CACHED = 1 << 17
#: The types that torch's fused kernels of a CPU compute right. SGD's (torch 2.13) is wrong with bfloat16 and float16.
EXACT = (torch.float32, torch.float64)


def with_grads(group: dict[str, Any]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Yield parameters of ``group`` that have a gradient, and the gradients, in pairs of lists.

    The tensors of a list share device and type. Accelerators get all of them at once; on a CPU, where every pass over
    large lists would go to memory, a pair holds about as much as the cache.
    """
    lists: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
    for parameter in group["params"]:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            raise RuntimeError("sparse gradients are not supported; use torch.optim.SparseAdam")
        params, grads = lists.setdefault((parameter.device, parameter.dtype), ([], []))
        params.append(parameter)
        grads.append(parameter.grad)
    for params, grads in lists.values():
        for begin, end in pieces(params):
            yield params[begin:end], grads[begin:end]


def pieces(tensors: Sequence[Tensor]) -> Iterator[tuple[int, int]]:
    """Return where to cut a list so that its pieces fit the cache; uncut unless on a CPU."""
    begin = size = 0
    for end, tensor in enumerate(tensors):
        size += tensor.numel()
        if size > CACHED and end > begin and tensors[0].device.type == "cpu":
            yield begin, end
            begin, size = end, tensor.numel()
    if begin < len(tensors):
        yield begin, len(tensors)


def kernels_fit(params: list[Tensor], grads: list[Tensor]) -> bool:
    """Return whether torch's fused kernels of a CPU take these tensors: they go through memory in order."""
    if params[0].device.type != "cpu" or params[0].dtype not in EXACT:
        return False
    return all(tensor.is_contiguous() for tensor in params) and all(grad.is_contiguous() for grad in grads)


def norms(tensors: list[Tensor]) -> Tensor:
    """Return the L2 norm of each tensor, as one vector. Nothing is copied to the host."""
    return torch.stack(torch._foreach_norm(tensors))


def lerp_(tensors: list[Tensor], others: list[Tensor], weight: float) -> None:
    """Move ``tensors`` the share ``weight`` of the way to ``others``.

    On a CPU, torch's kernel for SGD does it at a third of what ``_foreach_lerp_`` takes for small tensors: with a rate
    of ``-weight`` and a decay of -1 it adds ``weight · (other - tensor)``.
    """
    if weight >= 0.5 or not kernels_fit(tensors, others):  # from 0.5 on, lerp counts from the other end: 1 is a copy
        torch._foreach_lerp_(tensors, others, weight)
        return
    torch._fused_sgd_(
        tensors, others, [], weight_decay=-1.0, momentum=0.0, lr=-weight, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False, grad_scale=None, found_inf=None,
    )  # fmt: skip


def non_negative(**values: float) -> None:
    for name, value in values.items():
        if isinstance(value, int | float) and value < 0.0:
            raise ValueError(f"{name} is {value}; it must not be negative")
