"""Hooks of mmdet that configs of mmtracking name: averages with other momenta, a policy, two checks over ranks."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from etude.dialects.mmcv1.live.checks import require
from etude.dialects.mmcv1.live.hooks.annealing import annealing_cos
from etude.dialects.mmcv1.live.hooks.ema import EMAHook
from etude.dialects.mmcv1.live.hooks.hook import HOOKS, Hook
from etude.dialects.mmcv1.live.hooks.lr_updater import CosineAnnealingLrUpdaterHook, Rates, progress
from etude.dialects.mmcv1.live.parallel import unwrap
from etude.dialects.mmcv1.live.utils.dist import allreduce_params, get_dist_info

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


class BaseEMAHook(EMAHook):
    """Averages of parameters and, unless ``skip_buffers``, of buffers, after every ``interval``-th iteration."""

    def __init__(
        self,
        momentum: float = 0.0002,
        interval: int = 1,
        skip_buffers: bool = False,
        resume_from: str | None = None,
        momentum_fun: Callable[[int], float] | None = None,
    ) -> None:
        super().__init__(momentum, interval, resume_from=resume_from)
        self.momentum = momentum
        self.skip_buffers, self.momentum_fun = skip_buffers, momentum_fun

    def get_momentum(self, runner: BaseRunner) -> float:
        return self.momentum_fun(runner.iter) if self.momentum_fun else self.momentum

    def averaged(self, model: nn.Module) -> dict[str, Any]:
        return dict(model.named_parameters()) if self.skip_buffers else dict(model.state_dict(keep_vars=True))

    def after_train_iter(self, runner: BaseRunner) -> None:
        if (runner.iter + 1) % self.interval == 0:
            self._average(self.get_momentum(runner))


@HOOKS.register_module()
class ExpMomentumEMAHook(BaseEMAHook):
    """The weight of the newest values falls exponentially to ``momentum``, over about ``total_iter`` iterations."""

    def __init__(self, total_iter: int = 2000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum_fun = lambda now: (1 - self.momentum) * exp(-(1 + now) / total_iter) + self.momentum


@HOOKS.register_module()
class LinearMomentumEMAHook(BaseEMAHook):
    """The weight of the newest values is that of ``EMAHook``, limited during ``warm_up``."""

    def __init__(self, warm_up: int = 100, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        most = self.momentum**self.interval
        self.momentum_fun = lambda now: min(most, (1 + now) / (warm_up + now))


@HOOKS.register_module()
class YOLOXLrUpdaterHook(CosineAnnealingLrUpdaterHook):
    """A quadratic warmup of the base rate, half a cosine wave, and a constant rate in the last epochs."""

    def __init__(self, num_last_epochs: int, **kwargs: Any) -> None:
        self.num_last_epochs = num_last_epochs
        super().__init__(**kwargs)

    def get_warmup_lr(self, cur_iters: int) -> Rates:
        assert self.warmup_iters is not None
        factor = self.warmup_ratio * ((cur_iters + 1) / self.warmup_iters) ** 2
        if isinstance(self.base_lr, dict):
            return {name: [rate * factor for rate in rates] for name, rates in self.base_lr.items()}
        return [rate * factor for rate in self.base_lr]

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at, end = progress(self, runner)
        last, target = self.num_last_epochs * len(runner.data_loader), self.target(base_lr)
        if at + 1 >= end - last:
            return target
        assert self.warmup_iters is not None
        return annealing_cos(base_lr, target, (at + 1 - self.warmup_iters) / (end - self.warmup_iters - last))


@HOOKS.register_module()
class SyncNormHook(Hook):
    """The mean over all ranks of what norm layers hold, every ``interval`` epochs, and in the last ones after each."""

    def __init__(self, num_last_epochs: int = 15, interval: int = 1) -> None:
        self.num_last_epochs, self.interval = num_last_epochs, interval

    def before_train_epoch(self, runner: BaseRunner) -> None:
        if runner.epoch + 1 == known_epochs(runner) - self.num_last_epochs:
            self.interval = 1

    def after_train_epoch(self, runner: BaseRunner) -> None:
        if self.every_n_epochs(runner, self.interval) and get_dist_info()[1] > 1:
            held = [value for part in unwrap(runner.model).modules() if isinstance(part, _NormBase)
                    for value in part.state_dict(keep_vars=True).values()]  # fmt: skip
            allreduce_params([value.data for value in held if value.is_floating_point()])


@HOOKS.register_module()
class CheckInvalidLossHook(Hook):
    """Ends the run when the loss is not a number, looked at every ``interval`` iterations."""

    def __init__(self, interval: int = 50) -> None:
        self.interval = interval

    def after_train_iter(self, runner: BaseRunner) -> None:
        if self.every_n_iters(runner, self.interval):
            require(bool(torch.isfinite(runner.outputs["loss"])), "loss become infinite or NaN!")


def known_epochs(runner: BaseRunner) -> int:
    if runner.max_epochs is None:
        raise TypeError("this hook counts epochs: use the EpochBasedRunner")
    return runner.max_epochs
