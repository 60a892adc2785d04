"""detectron2's ``WarmupParamScheduler`` for fvcore's schedulers, which are functions of the progress of training."""

from __future__ import annotations

from typing import Any

from etude.errors import MissingExtra

try:
    from fvcore.common.param_scheduler import CompositeParamScheduler, ConstantParamScheduler, LinearParamScheduler
except ImportError as error:
    raise MissingExtra("fvcore", "detectron2", "a schedule of detectron2 (WarmupParamScheduler)") from error


class WarmupParamScheduler(CompositeParamScheduler):  # type: ignore[misc]
    """Adds a warm-up to any scheduler. ``warmup_length`` is a share of training."""

    def __init__(
        self,
        scheduler: Any,
        warmup_factor: float,
        warmup_length: float,
        warmup_method: str = "linear",
        rescale_interval: bool = False,
    ) -> None:
        end_value = scheduler(0.0) if rescale_interval else scheduler(warmup_length)
        start_value = warmup_factor * scheduler(0.0)
        if warmup_method == "constant":
            warmup = ConstantParamScheduler(start_value)
        elif warmup_method == "linear":
            warmup = LinearParamScheduler(start_value, end_value)
        else:
            raise ValueError(f"Unknown warmup method: {warmup_method}")
        super().__init__(
            [warmup, scheduler],
            interval_scaling=["rescaled", "rescaled" if rescale_interval else "fixed"],
            lengths=[warmup_length, 1 - warmup_length],
        )
