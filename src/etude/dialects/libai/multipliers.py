"""fvcore's parameter schedulers: functions of ``where``, the share of training that has passed.

A multi-step schedule says by itself how many updates it counts (``num_updates``); all others need only ``where``.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any


class ParamScheduler:
    """Maps progress in [0, 1) to a value."""

    #: The smallest step that matters: rounding must not put a milestone one update late.
    WHERE_EPSILON = 1e-6

    def __call__(self, where: float) -> float:
        raise NotImplementedError("Param schedulers must override __call__")


def is_param_scheduler(value: Any) -> bool:
    """Return whether ``value`` maps progress to a value; also one of fvcore's own, where that is installed."""
    return any(kind.__name__ == ParamScheduler.__name__ for kind in type(value).__mro__)


class ConstantParamScheduler(ParamScheduler):
    """One value for all of training."""

    def __init__(self, value: float) -> None:
        self._value = value

    def __call__(self, where: float) -> float:
        if where >= 1.0:
            raise RuntimeError(f"where in ParamScheduler must be in [0, 1]: got {where}")
        return self._value


class CosineParamScheduler(ParamScheduler):
    """Half a cosine from ``start_value`` to ``end_value``."""

    def __init__(self, start_value: float, end_value: float) -> None:
        self._start_value, self._end_value = start_value, end_value

    def __call__(self, where: float) -> float:
        return self._end_value + 0.5 * (self._start_value - self._end_value) * (1 + math.cos(math.pi * where))


class ExponentialParamScheduler(ParamScheduler):
    """``start_value`` times ``decay`` to the power of the progress."""

    def __init__(self, start_value: float, decay: float) -> None:
        self._start_value, self._decay = start_value, decay

    def __call__(self, where: float) -> float:
        return float(self._start_value * self._decay**where)


class LinearParamScheduler(ParamScheduler):
    """A straight line from ``start_value`` to ``end_value``."""

    def __init__(self, start_value: float, end_value: float) -> None:
        self._start_value, self._end_value = start_value, end_value

    def __call__(self, where: float) -> float:
        return self._end_value * where + self._start_value * (1 - where)


class PolynomialDecayParamScheduler(ParamScheduler):
    """``base_value`` times a power of the way that is left."""

    def __init__(self, base_value: float, power: float) -> None:
        self._base_value, self._power = base_value, power

    def __call__(self, where: float) -> float:
        return float(self._base_value * (1 - where) ** self._power)


class MultiStepParamScheduler(ParamScheduler):
    """A value per stretch between milestones. Without ``num_updates`` the last milestone is the end of training;
    without ``milestones`` the stretches are equal."""

    def __init__(
        self, values: Sequence[float], num_updates: int | None = None, milestones: Sequence[int] | None = None
    ) -> None:
        if num_updates is None and milestones is None:
            raise ValueError("num_updates and milestones cannot both be None")
        if milestones is None:
            assert num_updates is not None
            step = math.ceil(num_updates / float(len(values)))
            milestones = [step * (index + 1) for index in range(len(values) - 1)]
        elif num_updates is None:
            milestones, num_updates = list(milestones[:-1]), milestones[-1]
        self._check(values, num_updates, milestones)
        self._param_schedule, self._num_updates, self._milestones = values, num_updates, list(milestones)

    @staticmethod
    def _check(values: Any, num_updates: int, milestones: Any) -> None:
        if not (isinstance(values, Sequence) and len(values) > 0):
            raise ValueError("MultiStep scheduler requires a list of at least one param value")
        if num_updates <= 0:
            raise ValueError("Number of updates must be larger than 0")
        if not isinstance(milestones, Sequence) or len(milestones) != len(values) - 1:
            raise ValueError(f"MultiStep scheduler requires a list of {len(values) - 1} miletones")
        start = 0
        for milestone in milestones:
            if milestone >= num_updates:
                raise ValueError(
                    f"Milestone must be smaller than total number of updates: num_updates={num_updates}, "
                    f"milestone={milestone}"
                )
            if start >= milestone:
                raise ValueError(
                    f"Milestone must be smaller than start epoch: start_epoch={start}, milestone={milestone}"
                )
            start = milestone

    def __call__(self, where: float) -> float:
        if where > 1.0:
            raise RuntimeError(f"where in ParamScheduler must be in [0, 1]: got {where}")
        update = int((where + self.WHERE_EPSILON) * self._num_updates)
        return self._param_schedule[bisect.bisect_right(self._milestones, update)]


class StepParamScheduler(ParamScheduler):
    """Equal stretches, one per value."""

    def __init__(self, num_updates: int | float, values: Sequence[float]) -> None:
        if num_updates <= 0:
            raise ValueError("Number of updates must be larger than 0")
        if not (isinstance(values, Sequence) and len(values) > 0):
            raise ValueError("Step scheduler requires a list of at least one param value")
        self._param_schedule = values

    def __call__(self, where: float) -> float:
        return self._param_schedule[int((where + self.WHERE_EPSILON) * len(self._param_schedule))]


class StepWithFixedGammaParamScheduler(ParamScheduler):
    """Equal stretches, each ``gamma`` times the one before."""

    def __init__(self, base_value: float, num_decays: int, gamma: float, num_updates: int) -> None:
        for name, value in (("base_value", base_value), ("gamma", gamma)):
            if not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"'{name}' must be a positive number")
        for name, count in (("num_decays", num_decays), ("num_updates", num_updates)):
            if not (isinstance(count, int) and count > 0):
                raise ValueError(f"'{name}' must be a positive integer")
        self.base_value, self.num_decays, self.gamma, self.num_updates = base_value, num_decays, gamma, num_updates
        values = [base_value]
        for _ in range(num_decays):
            values.append(values[-1] * gamma)
        self._step_param_scheduler = StepParamScheduler(num_updates=num_updates, values=values)

    def __call__(self, where: float) -> float:
        return self._step_param_scheduler(where)


class CompositeParamScheduler(ParamScheduler):
    """Schedulers one after the other; ``fixed`` ones see the progress of the whole, ``rescaled`` ones their own."""

    def __init__(
        self, schedulers: Sequence[ParamScheduler], lengths: Sequence[float], interval_scaling: Sequence[str]
    ) -> None:
        if len(schedulers) != len(lengths):
            raise ValueError("Schedulers and lengths must be same length")
        if len(schedulers) == 0:
            raise ValueError("There must be at least one scheduler in the composite scheduler")
        if abs(sum(lengths) - 1.0) >= 1e-3:
            raise ValueError("The sum of all values in lengths must be 1")
        if sum(lengths) != 1.0:
            lengths = [*lengths[:-1], 1.0 - sum(lengths[:-1])]
        for scaling in interval_scaling:
            if scaling not in ("rescaled", "fixed"):
                raise ValueError(f"Unsupported interval_scaling: {scaling}")
        self._lengths, self._schedulers, self._interval_scaling = lengths, schedulers, interval_scaling

    def __call__(self, where: float) -> float:
        index, end = 0, self._lengths[0]
        while where + self.WHERE_EPSILON > end and index < len(self._schedulers) - 1:
            index += 1
            end += self._lengths[index]
        scheduler = self._schedulers[index]
        if self._interval_scaling[index] == "rescaled":
            begin = end - self._lengths[index]
            where = (where - begin) / self._lengths[index]
        return scheduler(where)


class WarmupParamScheduler(CompositeParamScheduler):
    """detectron2's warm-up in front of any scheduler; ``warmup_length`` is a share of training."""

    def __init__(
        self,
        scheduler: ParamScheduler,
        warmup_factor: float,
        warmup_length: float,
        warmup_method: str = "linear",
        rescale_interval: bool = False,
    ) -> None:
        end_value = scheduler(0.0) if rescale_interval else scheduler(warmup_length)
        start_value = warmup_factor * scheduler(0.0)
        if warmup_method == "constant":
            warmup: ParamScheduler = ConstantParamScheduler(start_value)
        elif warmup_method == "linear":
            warmup = LinearParamScheduler(start_value, end_value)
        else:
            raise ValueError(f"Unknown warmup method: {warmup_method}")
        super().__init__(
            [warmup, scheduler],
            interval_scaling=["rescaled", "rescaled" if rescale_interval else "fixed"],
            lengths=[warmup_length, 1 - warmup_length],
        )
