"""The schedules that papers call 1x, 3x, …: 1x is 90,000 iterations of 16 images; two drops near the end."""

from typing import Any

from etude_libai.lazy.load import LazyCall

_ONE = 90_000


def default_X_scheduler(num_X: int) -> Any:
    """Return the multiplier of the learning rate for ``num_X`` times the length.

    Up to 2x the drops keep their shares.
    """
    total = _ONE * num_X
    milestones = [60_000, 80_000, _ONE] if num_X <= 2 else [total - 60_000, total - 20_000, total]
    return LazyCall("detectron2.solver.WarmupParamScheduler")(
        scheduler=LazyCall("fvcore.common.param_scheduler.MultiStepParamScheduler")(
            values=[1.0, 0.1, 0.01], milestones=milestones
        ),
        warmup_length=1000 / total,
        warmup_method="linear",
        warmup_factor=0.001,
    )


lr_multiplier_1x = default_X_scheduler(1)
lr_multiplier_2x = default_X_scheduler(2)
lr_multiplier_3x = default_X_scheduler(3)
lr_multiplier_6x = default_X_scheduler(6)
lr_multiplier_9x = default_X_scheduler(9)
