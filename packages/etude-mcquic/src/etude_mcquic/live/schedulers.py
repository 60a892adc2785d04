"""McQuic's learning rate schedulers, which step once per epoch. :mod:`.builtin` registers torch's, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from etude_mcquic.live.registry import LrSchedulerRegistry, served_as

_MODULE = "mcquic.train.lrSchedulers"


@LrSchedulerRegistry.register
@served_as(_MODULE)
class MultiStepLRWithWarmUp(LRScheduler):
    """Rises by equal steps until just after the first milestone, then multiplies by ``gamma`` at each later one."""

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
        # ``verbose`` is not passed on: torch no longer takes it.
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        epoch = self.last_epoch
        # As in McQuic: at the first milestone m the rate is (m + 1) / m of the base. It stays there, as m never decays.
        if epoch <= self.warmUp:
            return [base * (epoch + 1.0) / self.warmUp for base in self.base_lrs]
        factor = self.gamma if epoch in self.milestones else 1.0
        return [group["lr"] * factor for group in self.optimizer.param_groups]


@LrSchedulerRegistry.register
@served_as(_MODULE)
class CyclicLR(torch.optim.lr_scheduler.CyclicLR):
    """Cycles between two rates, with the momentum in the opposite direction: torch's class, which McQuic copies."""

    def __init__(
        self,
        *args: Any,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        verbose: bool = False,
        **kwds: Any,
    ) -> None:
        kwds |= {"base_momentum": base_momentum, "max_momentum": max_momentum}
        super().__init__(*args, **kwds)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state. One that McQuic wrote lacks torch's entry for the scale function."""
        super().load_state_dict({"_scale_fn_custom": None, **state_dict})


@LrSchedulerRegistry.register
@served_as(_MODULE)
class CosineAnnealingWarmupRestarts(LRScheduler):
    """Runs cycles of linear warm-up and cosine to ``lrScaleRatio`` of the top, which falls by ``gamma`` each cycle."""

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
            self._seek(epoch)
        self.last_epoch = math.floor(epoch)
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _seek(self, epoch: int) -> None:
        """Set the position within the cycles for ``epoch``."""
        first, mult = self.first_cycle_steps, self.cycle_mult
        if epoch < first:
            self.cycle, self.step_in_cycle, self.cur_cycle_steps = 0, epoch, first
        elif mult == 1.0:
            self.cycle, self.step_in_cycle, self.cur_cycle_steps = epoch // first, epoch % first, first
        else:
            # As in McQuic, without the warm-up that step() leaves out of the stretching, so the two disagree.
            number = int(math.log(epoch / first * (mult - 1) + 1, mult))
            self.cycle = number
            self.step_in_cycle = epoch - int(first * (mult**number - 1) / (mult - 1))
            self.cur_cycle_steps = int(first * mult**number)
