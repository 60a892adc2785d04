"""The curves on the momentum; there is no one-cycle momentum."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.param_scheduler.base import _ParamScheduler
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
from etude.dialects.mmengine.live.registry import PARAM_SCHEDULERS


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


@PARAM_SCHEDULERS.register_module()
class ConstantMomentum(MomentumSchedulerMixin, ConstantParamScheduler):
    """The momentum by factor times the momentum, for a window."""


@PARAM_SCHEDULERS.register_module()
class CosineAnnealingMomentum(MomentumSchedulerMixin, CosineAnnealingParamScheduler):
    """The momentum by a cosine."""


@PARAM_SCHEDULERS.register_module()
class CosineRestartMomentum(MomentumSchedulerMixin, CosineRestartParamScheduler):
    """The momentum by cosines with restarts."""


@PARAM_SCHEDULERS.register_module()
class ExponentialMomentum(MomentumSchedulerMixin, ExponentialParamScheduler):
    """The momentum by a constant ratio."""


@PARAM_SCHEDULERS.register_module()
class LinearMomentum(MomentumSchedulerMixin, LinearParamScheduler):
    """The momentum by a straight line."""


@PARAM_SCHEDULERS.register_module()
class MultiStepMomentum(MomentumSchedulerMixin, MultiStepParamScheduler):
    """The momentum by milestones."""


@PARAM_SCHEDULERS.register_module()
class PolyMomentum(MomentumSchedulerMixin, PolyParamScheduler):
    """The momentum by a polynomial."""


@PARAM_SCHEDULERS.register_module()
class ReduceOnPlateauMomentum(MomentumSchedulerMixin, ReduceOnPlateauParamScheduler):
    """The momentum by the metrics of the validations."""


@PARAM_SCHEDULERS.register_module()
class StepMomentum(MomentumSchedulerMixin, StepParamScheduler):
    """The momentum by steps of equal length."""
