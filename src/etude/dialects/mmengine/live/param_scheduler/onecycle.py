"""The one-cycle policy: rises to a maximum and falls to almost zero."""

from __future__ import annotations

import math
from typing import Any

from etude.dialects.mmengine.live.param_scheduler.base import INF, Recurrence
from etude.dialects.openmm.registries.root import PARAM_SCHEDULERS


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
        step = self.last_step
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
        return [self._between(group[phase["start"]], group[phase["end"]], share) for group in self._groups()]

    def _groups(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self.optimizer.param_groups
        return groups

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
        return (end - start) * share + start
