"""Clipping by norm, with torch's numbers and fewer calls around its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

_DEVICES = frozenset({"cpu", "cuda"})


def clip_norm(params: Sequence[Tensor], max_norm: float, norm_type: float | str = 2.0, **options: Any) -> Tensor:
    """As torch's ``clip_grad_norm_``, to the bit, for ``params`` that all have a gradient; returns the norm before.

    Gradients of one kind on one device, which is the rule, go straight to the kernels; others take torch's own way.
    """
    grads: list[Any] = [param.grad for param in params]
    if options or not _alike(grads):
        return clip_grad_norm_(params, max_norm, norm_type, **options)  # type: ignore[arg-type]
    order = float(norm_type)
    with torch.no_grad():
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, order)), order)
        torch._foreach_mul_(grads, torch.clamp(float(max_norm) / (norm + 1e-6), max=1.0))
    return norm


def _alike(grads: list[Tensor]) -> bool:
    if any(type(grad) is not Tensor for grad in grads) or grads[0].device.type not in _DEVICES:
        return False
    return len(_group_tensors_by_device_and_dtype([grads])) == 1  # type: ignore[list-item]
