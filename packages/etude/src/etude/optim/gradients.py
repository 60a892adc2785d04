"""Clips gradients by their norm and clears them, with fewer calls per step than torch's helpers make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer


class ClipNorm:
    """Scales gradients down to a norm of ``most`` and returns the norm that they had.

    The results have the bits of ``torch.nn.utils.clip_grad_norm_``. That function groups the gradients by device and
    type, twice a step; here the parameters are looked at once. With ``peeks`` (tensors that Python can read without
    waiting for a device) gradients that need no scaling are not written at all.
    """

    def __init__(self, params: Sequence[Tensor], most: float, *, peeks: bool) -> None:
        self.params, self.most, self._peeks = params, float(most), peeks
        kinds = {(param.device, param.dtype) for param in params}
        self._alike = len(kinds) == 1 and all(type(param) in (Tensor, torch.nn.Parameter) for param in params)

    def __call__(self) -> Tensor:
        grads = [param.grad for param in self.params if param.grad is not None]
        if not self._alike or not grads:  # shards, several devices or types
            norm: Tensor = torch.nn.utils.clip_grad_norm_(self.params, self.most)
            return norm
        with torch.no_grad():
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
            if not (self._peeks and self._is_below(norm)):
                torch._foreach_mul_(grads, torch.clamp(self.most / (norm + 1e-6), max=1.0))
        return norm

    def _is_below(self, norm: Tensor) -> bool:
        """Return whether torch would scale by exactly 1. Close to the limit, where rounding decides, return False."""
        return norm.dtype != torch.bfloat16 and float(norm.numpy()) < self.most * 0.999 - 1e-6


def clear(optimizers: Iterable[Optimizer]) -> None:
    """Do what ``optimizer.zero_grad()`` does, without the profiler's record of it, which takes most of its time."""
    for optimizer in optimizers:
        if type(optimizer).zero_grad is not Optimizer.zero_grad:
            optimizer.zero_grad()
            continue
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad = None
