"""Learning-rate schedulers of McQuic, stepped once per epoch; torch's are registered beside them by :mod:`.builtin`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from etude.dialects.mcquic.live.registry import LrSchedulerRegistry, served_as

_MODULE = "mcquic.train.lrSchedulers"


@LrSchedulerRegistry.register
@served_as(_MODULE)
class MultiStepLRWithWarmUp(LRScheduler):
    """Rises by equal steps until just past the first milestone, then falls by ``gamma`` at each later one."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.milestones, self.gamma = set(milestones), gamma
        self.warmUp = min(milestones)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch
        if epoch <= self.warmUp:
            return [base * (epoch + 1.0) / self.warmUp for base in self.base_lrs]
        factor = self.gamma if epoch in self.milestones else 1.0
        return [group["lr"] * factor for group in self.optimizer.param_groups]


@LrSchedulerRegistry.register
@served_as(_MODULE)
class CyclicLR(LRScheduler):
    """Up and down between two rates; the momentum goes the other way."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.optimizer = optimizer
        bases = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, bases, strict=True):
                group["lr"] = rate
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.gamma, self.mode = gamma, mode
        self.scale_fn, self.scale_mode = self._scaling(mode, scale_fn, scale_mode)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._prepare_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = list(bases)

    def _scaling(
        self, mode: str, given: Callable[[float], float] | None, scale_mode: str
    ) -> tuple[Callable[[float], float], str]:
        if given is not None:
            return given, scale_mode
        if mode == "exp_range":
            return lambda step: self.gamma**step, "iterations"
        return (lambda cycle: 1.0) if mode == "triangular" else (lambda cycle: 1 / 2 ** (cycle - 1)), "cycle"

    def _prepare_momentum(self, low: float | list[float], high: float | list[float], last_epoch: int) -> None:
        self.use_beta1 = "betas" in self.optimizer.defaults
        if not self.use_beta1 and "momentum" not in self.optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        lows, highs = _per_group("base_momentum", self.optimizer, low), _per_group("max_momentum", self.optimizer, high)
        if last_epoch == -1:
            for group, least, most in zip(self.optimizer.param_groups, lows, highs, strict=True):
                self._set_momentum(group, most)
                group["base_momentum"], group["max_momentum"] = least, most
        self.base_momentums = [group["base_momentum"] for group in self.optimizer.param_groups]
        self.max_momentums = [group["max_momentum"] for group in self.optimizer.param_groups]

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                self._set_momentum(group, high - (high - low) * height * scale)
        return [base + (top - base) * height * scale for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Without the scaling function, which follows from the mode."""
        return {key: value for key, value in super().state_dict().items() if key != "scale_fn"}


@LrSchedulerRegistry.register
@served_as(_MODULE)
class CosineAnnealingWarmupRestarts(LRScheduler):
    """Cycles of linear warm-up and a cosine to ``lrScaleRatio`` of the top, which falls by ``gamma`` each cycle."""

    def __init__(
        self,
        optimizer: Optimizer,
        first_cycle_steps: int,
        cycle_mult: float = 1.0,
        lrScaleRatio: float = 0.01,
        warmup_steps: int = 0,
        gamma: float = 1.0,
        last_epoch: int = -1,
        cycle_momentum: bool = False,
        max_momentum: float = 0.9,
        base_momentum: float = 0.8,
        verbose: bool = False,
    ) -> None:
        assert warmup_steps < first_cycle_steps
        self.first_cycle_steps, self.cycle_mult = first_cycle_steps, cycle_mult
        self.lrScaleRatio, self.warmup_steps, self.gamma = lrScaleRatio, warmup_steps, gamma
        self.cur_cycle_steps, self.cycle, self.step_in_cycle = first_cycle_steps, 0, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        position, warm = max(self.step_in_cycle, 0), self.warmup_steps
        top = self.gamma**self.cycle
        low = self.lrScaleRatio * top
        if position < warm:
            return [base * (low + (top - low) * position / warm) for base in self.base_lrs]
        angle = math.pi * (position - warm) / (self.cur_cycle_steps - warm)
        return [base * (low + (top - low) * (1 + math.cos(angle)) / 2) for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        if epoch is None:
            epoch = self.last_epoch + 1
            self.step_in_cycle += 1
            if self.step_in_cycle >= self.cur_cycle_steps:
                self.cycle += 1
                self.step_in_cycle -= self.cur_cycle_steps
                stretched = (self.cur_cycle_steps - self.warmup_steps) * self.cycle_mult
                self.cur_cycle_steps = int(stretched) + self.warmup_steps
        else:
            self._jump(epoch)
        self.last_epoch = math.floor(epoch)
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _jump(self, epoch: int) -> None:
        """Return where the cycles would stand at ``epoch``."""
        first, mult = self.first_cycle_steps, self.cycle_mult
        if epoch < first:
            self.cycle, self.step_in_cycle, self.cur_cycle_steps = 0, epoch, first
        elif mult == 1.0:
            self.cycle, self.step_in_cycle, self.cur_cycle_steps = epoch // first, epoch % first, first
        else:
            number = int(math.log(epoch / first * (mult - 1) + 1, mult))
            self.cycle = number
            self.step_in_cycle = epoch - int(first * (mult**number - 1) / (mult - 1))
            self.cur_cycle_steps = int(first * mult**number)


def _per_group(name: str, optimizer: Optimizer, value: float | Sequence[float]) -> list[float]:
    count = len(optimizer.param_groups)
    if isinstance(value, list | tuple):
        if len(value) != count:
            raise ValueError(f"expected {count} values for {name}, got {len(value)}")
        return list(value)
    return [value] * count  # type: ignore[list-item]
