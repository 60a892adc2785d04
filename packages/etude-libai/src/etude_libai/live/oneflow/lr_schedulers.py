"""``oneflow.optim.lr_scheduler``: schedulers whose ``get_lr(base_lr, step)`` is a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from etude_libai import curves


class LRScheduler(torch.optim.lr_scheduler.LRScheduler):
    """The base class of schedulers written for OneFlow: override ``get_lr(base_lr, step)`` or ``update_lrs``."""

    def __init__(self, optimizer: Any, last_step: int = -1, verbose: bool = False) -> None:
        self.optimizer, self.last_step, self.verbose = optimizer, last_step, verbose
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._last_lr: list[Any] = []
        self.step()

    def get_lr(self, base_lr: float, step: int) -> float:  # type: ignore[override]
        raise NotImplementedError(f"{type(self).__name__} does not override get_lr(base_lr, step)")

    def step(self, epoch: int | None = None) -> None:
        self.last_step += 1
        self.update_lrs([self.get_lr(float(base), self.last_step) for base in self.base_lrs])

    def update_lrs(self, lrs: Sequence[float]) -> None:
        self._last_lr = list(lrs)
        for index, (group, lr) in enumerate(zip(self.optimizer.param_groups, lrs, strict=True)):
            group["lr"] = lr
            if self.verbose:
                self.print_lr(index, lr)

    def get_last_lr(self) -> list[Any]:
        return self._last_lr

    def print_lr(self, group: int, lr: float) -> None:
        print(f"Adjusting learning rate of param_groups[{group}] to {lr} at step {self.last_step}.")

    def state_dict(self) -> dict[str, Any]:
        """Return the counters; curves come from the config."""
        return {"last_step": self.last_step, "base_lrs": list(self.base_lrs), "_last_lr": list(self._last_lr)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


class _Curve(LRScheduler):
    def __init__(self, optimizer: Any, curve: curves.Curve, last_step: int, verbose: bool) -> None:
        self.curve = curve
        super().__init__(optimizer, last_step, verbose)

    def get_lr(self, base_lr: float, step: int) -> float:  # type: ignore[override]
        return self.curve(base_lr, step)


class CosineDecayLR(_Curve):
    def __init__(
        self, optimizer: Any, decay_steps: int, alpha: float = 0.0, last_step: int = -1, verbose: bool = False
    ) -> None:
        super().__init__(optimizer, curves.cosine(decay_steps, alpha), last_step, verbose)


class CosineAnnealingLR(_Curve):
    def __init__(
        self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_step: int = -1, verbose: bool = False
    ) -> None:
        super().__init__(optimizer, curves.cosine_annealing(T_max, eta_min), last_step, verbose)


class StepLR(_Curve):
    def __init__(
        self, optimizer: Any, step_size: int, gamma: float = 0.1, last_step: int = -1, verbose: bool = False
    ) -> None:
        super().__init__(optimizer, curves.step_decay(step_size, gamma), last_step, verbose)


class MultiStepLR(_Curve):
    def __init__(
        self, optimizer: Any, milestones: Sequence[int], gamma: float = 0.1, last_step: int = -1, verbose: bool = False
    ) -> None:
        super().__init__(optimizer, curves.multi_step(milestones, gamma), last_step, verbose)


class ExponentialLR(_Curve):
    def __init__(self, optimizer: Any, gamma: float, last_step: int = -1, verbose: bool = False) -> None:
        super().__init__(optimizer, curves.exponential(gamma), last_step, verbose)


class PolynomialLR(_Curve):
    def __init__(
        self,
        optimizer: Any,
        decay_batch: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        super().__init__(optimizer, curves.polynomial(decay_batch, end_learning_rate, power, cycle), last_step, verbose)


class WarmUpLR(_Curve):
    """Adds a warm-up to a scheduler of this module, or to the optimizer's constant rate."""

    def __init__(
        self,
        lrsch_or_optimizer: Any,
        warmup_factor: float = 1.0 / 3,
        warmup_iters: int = 5,
        warmup_method: str = "linear",
        warmup_prefix: bool = False,
        last_step: int = -1,
        verbose: bool = False,
    ) -> None:
        if warmup_method not in ("linear", "constant"):
            raise ValueError(f"warmup_method should in ['linear', 'constant'], but got {warmup_method}")
        inner = lrsch_or_optimizer
        main: curves.Curve = (lambda base, step: base) if isinstance(inner, torch.optim.Optimizer) else inner.get_lr
        if warmup_prefix:
            later = main
            main = lambda base, step: later(base, max(0, step - warmup_iters))  # noqa: E731
        optimizer = inner if isinstance(inner, torch.optim.Optimizer) else inner.optimizer
        curve = curves.warmed(main, factor=warmup_factor, length=warmup_iters, method=warmup_method)
        super().__init__(optimizer, curve, last_step, verbose)


WarmupLR = WarmUpLR
_LRScheduler = LRScheduler
