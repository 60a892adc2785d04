"""The curves of MMEngine's schedulers. Each computes the next value from the current one, for any ``param_name``.

In the formulas v is the group's current value, and b its base value. ``window`` and ``named`` are the arguments of
:class:`_ParamScheduler` from ``begin`` on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from etude_openmm.mmengine.live.param_scheduler.base import INF, Recurrence
from etude_openmm.shared.registries.root import PARAM_SCHEDULERS


class _Windowed(Recurrence):
    """A curve whose shape depends on the length of its window."""

    def _initial_step(self) -> None:
        # The window's last step, end - 1, has the end value.
        self.total_iters = self.end - self.begin - 1
        super()._initial_step()


@PARAM_SCHEDULERS.register_module()
class ConstantParamScheduler(_Windowed):
    """Multiplies v by ``factor`` in the first step, and undoes that in the last step of the window."""

    def __init__(self, optimizer: Any, param_name: str, factor: float = 1.0 / 3, *window: Any, **named: Any) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError(f"Constant multiplicative factor should between 0 and 1, but got {factor}.")
        self.factor = factor
        super().__init__(optimizer, param_name, *window, **named)

    def _next(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value * self.factor
        # The product with the reciprocal, as in MMEngine: a division would round differently.
        return value * (1.0 / self.factor) if self.last_step == self.total_iters else value


@PARAM_SCHEDULERS.register_module()
class LinearParamScheduler(_Windowed):
    """From b·start_factor to b·end_factor in equal steps."""

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        *window: Any,
        **named: Any,
    ) -> None:
        for name, factor in (("Starting", start_factor), ("Ending", end_factor)):
            if not 0 <= factor <= 1.0:
                raise ValueError(f"{name} multiplicative factor should between 0 and 1, but got {factor}.")
        self.start_factor, self.end_factor = start_factor, end_factor
        super().__init__(optimizer, param_name, *window, **named)

    def _next(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value * self.start_factor
        # As torch's LinearLR: the step is expressed as a factor of the current value.
        rise = self.end_factor - self.start_factor
        return value * (1.0 + rise / (self.total_iters * self.start_factor + (self.last_step - 1) * rise))


@PARAM_SCHEDULERS.register_module()
class StepParamScheduler(Recurrence):
    """Multiplies v by ``gamma`` every ``step_size`` steps."""

    in_steps = ("step_size",)

    def __init__(
        self, optimizer: Any, param_name: str, step_size: int, gamma: float = 0.1, *window: Any, **named: Any
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, param_name, *window, **named)

    def _next(self, value: float, base: float) -> float:
        return value if self.last_step == 0 or self.last_step % self.step_size else value * self.gamma


@PARAM_SCHEDULERS.register_module()
class MultiStepParamScheduler(Recurrence):
    """Multiplies v by ``gamma`` at every milestone, as often as it is listed."""

    in_steps = ("milestones",)

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_step: int = -1,
        begin: int = 0,
        end: int = INF,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, param_name, begin, end, last_step, by_epoch, verbose)

    def _next(self, value: float, base: float) -> float:
        times = self.milestones.get(self.last_step, 0)
        return value * self.gamma**times if times else value


@PARAM_SCHEDULERS.register_module()
class ExponentialParamScheduler(Recurrence):
    """Multiplies v by ``gamma`` every step."""

    def __init__(self, optimizer: Any, param_name: str, gamma: float, *window: Any, **named: Any) -> None:
        self.gamma = gamma
        super().__init__(optimizer, param_name, *window, **named)

    def _next(self, value: float, base: float) -> float:
        return value if self.last_step == 0 else value * self.gamma


@PARAM_SCHEDULERS.register_module()
class PolyParamScheduler(_Windowed):
    """Falls from b to ``eta_min`` along ``(1 - progress) ** power``, reached in the last step of the window."""

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        eta_min: float = 0,
        power: float = 1.0,
        *window: Any,
        **named: Any,
    ) -> None:
        self.eta_min, self.power = eta_min, power
        super().__init__(optimizer, param_name, *window, **named)

    def _next(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value
        share: float = (1 - 1 / (self.total_iters - self.last_step + 1)) ** self.power
        return (value - self.eta_min) * share + self.eta_min


def _along_cosine(value: float, floor: float, step: int, period: int) -> float:
    """Return the next value on a half cosine of ``period`` steps, starting from ``value``."""
    return _cosine_factor(step, period) * (value - floor) + floor


@lru_cache(maxsize=16)
def _cosine_factor(step: int, period: int) -> float:
    """Return the factor of one step of a half cosine. It is cached, because all groups of a step need the same."""
    return (1 + math.cos(math.pi * step / period)) / (1 + math.cos(math.pi * (step - 1) / period))


@PARAM_SCHEDULERS.register_module()
class CosineAnnealingParamScheduler(Recurrence):
    """Follows a cosine from b to ``eta_min`` in ``T_max`` steps (default: the window), and back up after that."""

    in_steps = ("T_max",)

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        T_max: int | None = None,
        eta_min: float | None = None,
        *window: Any,
        eta_min_ratio: float | None = None,
        **named: Any,
    ) -> None:
        if eta_min is None and eta_min_ratio is None:
            eta_min = 0.0
        elif eta_min is not None and eta_min_ratio is not None:
            raise AssertionError("Either `eta_min` or `eta_min_ratio` should be specified, not both.")
        self.T_max: Any = T_max
        self.eta_min, self.eta_min_ratio = eta_min, eta_min_ratio
        super().__init__(optimizer, param_name, *window, **named)

    def _initial_step(self) -> None:
        self.T_max = self.T_max or (self.end - self.begin)
        super()._initial_step()

    def _next(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value
        floor = self._floor(base)
        if (self.last_step - 1 - self.T_max) % (2 * self.T_max) == 0:  # the valley: the factor would divide by 0
            return value + (base - floor) * (1 - math.cos(math.pi / self.T_max)) / 2
        return _along_cosine(value, floor, self.last_step, self.T_max)

    def _floor(self, base: float) -> float:
        if self.eta_min_ratio is not None:
            return base * self.eta_min_ratio
        assert self.eta_min is not None
        return self.eta_min


@PARAM_SCHEDULERS.register_module()
class CosineRestartParamScheduler(Recurrence):
    """Follows several cosines, each from b times its restart weight. After the last one, v stays."""

    in_steps = ("periods",)

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        periods: list[int],
        restart_weights: Sequence[float] = (1,),
        eta_min: float | None = None,
        eta_min_ratio: float | None = None,
        *window: Any,
        **named: Any,
    ) -> None:
        if (eta_min is None) == (eta_min_ratio is None):
            raise AssertionError("Exactly one of `eta_min` and `eta_min_ratio` should be specified.")
        if len(periods) != len(restart_weights):
            raise AssertionError("periods and restart_weights should have the same length.")
        self.periods, self.restart_weights = periods, restart_weights
        self.eta_min, self.eta_min_ratio = eta_min, eta_min_ratio
        self.cumulative_periods = [sum(periods[: index + 1]) for index in range(len(periods))]
        super().__init__(optimizer, param_name, *window, **named)

    def _next(self, value: float, base: float) -> float:
        index = self.get_position_from_periods(self.last_step, self.cumulative_periods)
        if index is None:
            return value
        step = self.last_step - (self.cumulative_periods[index - 1] if index else 0)
        if step == 0:
            return base * self.restart_weights[index]
        floor = self.eta_min if self.eta_min_ratio is None else base * self.eta_min_ratio
        assert floor is not None
        return _along_cosine(value, floor, step, self.periods[index])

    @staticmethod
    def get_position_from_periods(iteration: int, cumulative_periods: list[int]) -> int | None:
        """Return the index of the period that ``iteration`` is in, or None after the last."""
        return next((index for index, end in enumerate(cumulative_periods) if iteration < end), None)


@PARAM_SCHEDULERS.register_module()
class OneCycleParamScheduler(Recurrence):
    """Goes from ``eta_max / div_factor`` to ``eta_max`` to ``initial / final_div_factor`` over ``total_steps``.

    The values are absolute: those of the groups are overwritten, ``lr_mult`` included. ``eta_max`` may be a
    list with a value per group, the wrapper's base group counted.
    """

    in_steps = ("total_steps",)

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        eta_max: float | list[float] = 0,
        total_steps: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        begin: int = 0,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        assert param_name == "lr", f"OneCycle only works for learning rate updating, but got {param_name!r}"
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"``optimizer`` should be an Optimizer, but got {type(optimizer).__name__}")
        if total_steps is None:
            total_steps = end - begin
        elif not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps!r}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f'anneal_strategy must by one of "cos" or "linear", but got {anneal_strategy!r}')
        self.param_name, self.total_steps, self.anneal_strategy = param_name, total_steps, anneal_strategy
        self._schedule_phases = self._phases(pct_start, three_phase)
        if last_step == -1:
            self._set_limits(optimizer.param_groups, eta_max, div_factor, final_div_factor)
        super().__init__(optimizer, param_name, begin, end, last_step, by_epoch, verbose)

    def _phases(self, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
        initial, top, low = (f"{word}_{self.param_name}" for word in ("initial", "max", "min"))
        total = self.total_steps
        # The phases end where those of torch's OneCycleLR do.
        rise = {"end_step": float(pct_start * total) - 1, "start": initial, "end": top}
        if not three_phase:
            return [rise, {"end_step": total - 1, "start": top, "end": low}]
        return [
            rise,
            {"end_step": float(2 * pct_start * total) - 2, "start": top, "end": initial},
            {"end_step": total - 1, "start": initial, "end": low},
        ]

    def _set_limits(self, groups: list[dict[str, Any]], eta_max: Any, divide: float, divide_last: float) -> None:
        """Write the initial, highest and lowest value of the cycle into the groups."""
        peaks = list(eta_max) if isinstance(eta_max, (list, tuple)) else [eta_max] * len(groups)
        if len(peaks) != len(groups):
            raise ValueError(f"expected {len(groups)} values for eta_max, got {len(peaks)}")
        for group, peak in zip(groups, peaks, strict=True):
            group[f"initial_{self.param_name}"] = peak / divide
            group[f"max_{self.param_name}"] = peak
            group[f"min_{self.param_name}"] = peak / divide / divide_last

    def _get_value(self) -> list[float]:
        step, groups = self.last_step, self.optimizer.param_groups
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step + 1} times, but the cycle has only {self.total_steps} steps")
        start = 0.0
        for phase in self._schedule_phases[:-1]:
            if step <= phase["end_step"]:
                break
            start = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        share = (step - start) / (phase["end_step"] - start)
        return [self._between(group[phase["start"]], group[phase["end"]], share) for group in groups]

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)  # torch's order of operations
        return (end - start) * share + start
