"""Clears gradients with fewer calls per step than torch's helper makes."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim import Optimizer


def clear(optimizers: Iterable[Optimizer]) -> None:
    """Do what ``optimizer.zero_grad()`` does, without the profiler's record of it, which takes most of its time."""
    for optimizer in optimizers:
        if type(optimizer).zero_grad is not Optimizer.zero_grad:
            optimizer.zero_grad()
            continue
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad = None
