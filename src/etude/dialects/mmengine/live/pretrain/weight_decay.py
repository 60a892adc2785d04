"""A cosine on the weight decay."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.param_scheduler.base import _ParamScheduler
from etude.dialects.mmengine.live.param_scheduler.rules import CosineAnnealingParamScheduler
from etude.dialects.mmengine.live.pretrain.registry import PARAM_SCHEDULERS


class WeightDecaySchedulerMixin(_ParamScheduler):
    """Fixes the entry to ``weight_decay``."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "weight_decay", *args, **kwargs)


@PARAM_SCHEDULERS.register_module()
class CosineAnnealingWeightDecay(WeightDecaySchedulerMixin, CosineAnnealingParamScheduler):
    """Groups that start without a decay (biases, norms) stay without."""

    def _next(self, value: float, base: float) -> float:
        return 0.0 if base == 0 else super()._next(value, base)
