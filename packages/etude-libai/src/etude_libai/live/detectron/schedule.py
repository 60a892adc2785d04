"""detectron2's schedulers: multipliers of the learning rate of each group."""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from typing import Any

import torch


def is_param_scheduler(value: Any) -> bool:
    """Return whether ``value`` is a scheduler of fvcore. Compares names, so that fvcore need not be installed."""
    return any(kind.__name__ == "ParamScheduler" for kind in type(value).__mro__)


class LRMultiplier(torch.optim.lr_scheduler.LRScheduler):
    """Sets lr = initial lr × ``multiplier(t / max_iter)`` in every group."""

    def __init__(self, optimizer: torch.optim.Optimizer, multiplier: Any, max_iter: int, last_iter: int = -1) -> None:
        if not is_param_scheduler(multiplier):
            raise ValueError(
                f"_LRMultiplier(multiplier=) must be an instance of fvcore ParamScheduler. Got {multiplier} instead."
            )
        self._multiplier, self._max_iter = multiplier, max_iter
        super().__init__(optimizer, last_epoch=last_iter)

    def state_dict(self) -> dict[str, Any]:
        """Return only numbers; the multiplier comes from the config."""
        return {"base_lrs": self.base_lrs, "last_epoch": self.last_epoch}

    def get_lr(self) -> list[float | torch.Tensor]:
        factor = self._multiplier(self.last_epoch / self._max_iter)
        return [base * factor for base in self.base_lrs]


class _Warmup(torch.optim.lr_scheduler.LRScheduler):
    """The base of the deprecated schedulers from before :class:`LRMultiplier`: a main curve times a warm-up factor."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup_factor: float,
        warmup_iters: int,
        warmup_method: str,
        last_epoch: int,
    ) -> None:
        logging.getLogger("detectron2.solver.lr_scheduler").warning(
            f"{type(self).__name__} is deprecated! Use LRMultipilier with fvcore ParamScheduler instead!"
        )
        self.warmup_factor, self.warmup_iters, self.warmup_method = warmup_factor, warmup_iters, warmup_method
        super().__init__(optimizer, last_epoch)

    def _main(self, base: float) -> float:
        raise NotImplementedError

    def get_lr(self) -> list[float | torch.Tensor]:
        factor = _get_warmup_factor_at_iter(self.warmup_method, self.last_epoch, self.warmup_iters, self.warmup_factor)
        return [self._main(float(base)) * factor for base in self.base_lrs]


def _get_warmup_factor_at_iter(method: str, iter: int, warmup_iters: int, warmup_factor: float) -> float:
    """Return the factor of the learning rate at iteration ``iter`` of a warm-up; 1 after it."""
    if iter >= warmup_iters:
        return 1.0
    if method == "constant":
        return warmup_factor
    if method == "linear":
        alpha = iter / warmup_iters
        return warmup_factor * (1 - alpha) + alpha
    raise ValueError(f"Unknown warmup method: {method}")


class WarmupMultiStepLR(_Warmup):
    """Multiplies by ``gamma`` at every milestone, after a warm-up."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        milestones: list[int],
        gamma: float = 0.1,
        warmup_factor: float = 0.001,
        warmup_iters: int = 1000,
        warmup_method: str = "linear",
        last_epoch: int = -1,
    ) -> None:
        if not list(milestones) == sorted(milestones):
            raise ValueError(f"Milestones should be a list of increasing integers. Got {milestones}")
        self.milestones, self.gamma = milestones, gamma
        super().__init__(optimizer, warmup_factor, warmup_iters, warmup_method, last_epoch)

    def _main(self, base: float) -> float:
        return float(base * self.gamma ** bisect_right(self.milestones, self.last_epoch))


class WarmupCosineLR(_Warmup):
    """Follows half a cosine down to 0, after a warm-up."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        max_iters: int,
        warmup_factor: float = 0.001,
        warmup_iters: int = 1000,
        warmup_method: str = "linear",
        last_epoch: int = -1,
    ) -> None:
        self.max_iters = max_iters
        super().__init__(optimizer, warmup_factor, warmup_iters, warmup_method, last_epoch)

    def _main(self, base: float) -> float:
        return base * 0.5 * (1.0 + math.cos(math.pi * self.last_epoch / self.max_iters))
