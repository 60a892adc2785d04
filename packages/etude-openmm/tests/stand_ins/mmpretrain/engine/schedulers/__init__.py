"""MMPretrain's parameter scheduler."""

from __future__ import annotations

from typing import Any

from mmengine.optim.scheduler.param_scheduler import CosineAnnealingParamScheduler

from mmpretrain.registry import PARAM_SCHEDULERS


@PARAM_SCHEDULERS.register_module()
class CosineAnnealingWeightDecay(CosineAnnealingParamScheduler):
    """A cosine for the weight decay. Groups that start without decay (biases, norms) stay without."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "weight_decay", *args, **kwargs)

    def _get_value(self) -> list[float]:
        values = zip(super()._get_value(), self.base_values, strict=True)
        return [0.0 if base == 0 else value for value, base in values]
