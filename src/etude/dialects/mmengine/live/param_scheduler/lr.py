"""The curves on the learning rate."""

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
from etude.dialects.mmengine.live.registry import PARAM_SCHEDULERS


class LRSchedulerMixin(_ParamScheduler):
    """Fixes the entry to ``lr``."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "lr", *args, **kwargs)


@PARAM_SCHEDULERS.register_module()
class ConstantLR(LRSchedulerMixin, ConstantParamScheduler):
    """The learning rate by factor times the learning rate, for a window."""


@PARAM_SCHEDULERS.register_module()
class CosineAnnealingLR(LRSchedulerMixin, CosineAnnealingParamScheduler):
    """The learning rate by a cosine."""


@PARAM_SCHEDULERS.register_module()
class CosineRestartLR(LRSchedulerMixin, CosineRestartParamScheduler):
    """The learning rate by cosines with restarts."""


@PARAM_SCHEDULERS.register_module()
class ExponentialLR(LRSchedulerMixin, ExponentialParamScheduler):
    """The learning rate by a constant ratio."""


@PARAM_SCHEDULERS.register_module()
class LinearLR(LRSchedulerMixin, LinearParamScheduler):
    """The learning rate by a straight line."""


@PARAM_SCHEDULERS.register_module()
class MultiStepLR(LRSchedulerMixin, MultiStepParamScheduler):
    """The learning rate by milestones."""


@PARAM_SCHEDULERS.register_module()
class OneCycleLR(LRSchedulerMixin, OneCycleParamScheduler):
    """The learning rate by one cycle."""


@PARAM_SCHEDULERS.register_module()
class PolyLR(LRSchedulerMixin, PolyParamScheduler):
    """The learning rate by a polynomial."""


@PARAM_SCHEDULERS.register_module()
class ReduceOnPlateauLR(LRSchedulerMixin, ReduceOnPlateauParamScheduler):
    """The learning rate by the metrics of the validations."""


@PARAM_SCHEDULERS.register_module()
class StepLR(LRSchedulerMixin, StepParamScheduler):
    """The learning rate by steps of equal length."""
