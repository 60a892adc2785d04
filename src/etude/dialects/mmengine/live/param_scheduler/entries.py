"""The curves on the learning rate, on the momentum (without one-cycle) and on the weight decay."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.param_scheduler.base import _ParamScheduler
from etude.dialects.mmengine.live.param_scheduler.onecycle import OneCycleParamScheduler
from etude.dialects.mmengine.live.param_scheduler.plateau import ReduceOnPlateauParamScheduler
from etude.dialects.mmengine.live.param_scheduler.rules import (
    ConstantParamScheduler,
    CosineAnnealingParamScheduler,
    CosineRestartParamScheduler,
    ExponentialParamScheduler,
    LinearParamScheduler,
    MultiStepParamScheduler,
    PolyParamScheduler,
    StepParamScheduler,
)


class LRSchedulerMixin(_ParamScheduler):
    """Fixes the entry to ``lr``."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "lr", *args, **kwargs)


class ConstantLR(LRSchedulerMixin, ConstantParamScheduler):
    """The learning rate by factor times the learning rate, for a window."""


class CosineAnnealingLR(LRSchedulerMixin, CosineAnnealingParamScheduler):
    """The learning rate by a cosine."""


class CosineRestartLR(LRSchedulerMixin, CosineRestartParamScheduler):
    """The learning rate by cosines with restarts."""


class ExponentialLR(LRSchedulerMixin, ExponentialParamScheduler):
    """The learning rate by a constant ratio."""


class LinearLR(LRSchedulerMixin, LinearParamScheduler):
    """The learning rate by a straight line."""


class MultiStepLR(LRSchedulerMixin, MultiStepParamScheduler):
    """The learning rate by milestones."""


class OneCycleLR(LRSchedulerMixin, OneCycleParamScheduler):
    """The learning rate by one cycle."""


class PolyLR(LRSchedulerMixin, PolyParamScheduler):
    """The learning rate by a polynomial."""


class ReduceOnPlateauLR(LRSchedulerMixin, ReduceOnPlateauParamScheduler):
    """The learning rate by the metrics of the validations."""


class StepLR(LRSchedulerMixin, StepParamScheduler):
    """The learning rate by steps of equal length."""


class MomentumSchedulerMixin(_ParamScheduler):
    """Fixes the entry to ``momentum``; for the Adam family a group's ``momentum`` stands for its first beta."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self.use_betas = "momentum" not in optimizer.defaults
        if self.use_betas:
            if "betas" not in optimizer.defaults:
                raise ValueError("optimizer must support momentum when using momentum scheduler")
            for group in optimizer.param_groups:
                group["momentum"] = group["betas"][0]
        super().__init__(optimizer, "momentum", *args, **kwargs)

    def step(self, *args: Any, **kwargs: Any) -> None:
        super().step(*args, **kwargs)
        if self.use_betas:
            for group in self.optimizer.param_groups:
                group["betas"] = (group["momentum"], group["betas"][1])


class ConstantMomentum(MomentumSchedulerMixin, ConstantParamScheduler):
    """The momentum by factor times the momentum, for a window."""


class CosineAnnealingMomentum(MomentumSchedulerMixin, CosineAnnealingParamScheduler):
    """The momentum by a cosine."""


class CosineRestartMomentum(MomentumSchedulerMixin, CosineRestartParamScheduler):
    """The momentum by cosines with restarts."""


class ExponentialMomentum(MomentumSchedulerMixin, ExponentialParamScheduler):
    """The momentum by a constant ratio."""


class LinearMomentum(MomentumSchedulerMixin, LinearParamScheduler):
    """The momentum by a straight line."""


class MultiStepMomentum(MomentumSchedulerMixin, MultiStepParamScheduler):
    """The momentum by milestones."""


class PolyMomentum(MomentumSchedulerMixin, PolyParamScheduler):
    """The momentum by a polynomial."""


class ReduceOnPlateauMomentum(MomentumSchedulerMixin, ReduceOnPlateauParamScheduler):
    """The momentum by the metrics of the validations."""


class StepMomentum(MomentumSchedulerMixin, StepParamScheduler):
    """The momentum by steps of equal length."""


class WeightDecaySchedulerMixin(_ParamScheduler):
    """Fixes the entry to ``weight_decay``."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "weight_decay", *args, **kwargs)


class CosineAnnealingWeightDecay(WeightDecaySchedulerMixin, CosineAnnealingParamScheduler):
    """MMPretrain's; groups that start without a decay (biases, norms) stay without."""

    def _next(self, value: float, base: float) -> float:
        return 0.0 if base == 0 else super()._next(value, base)
