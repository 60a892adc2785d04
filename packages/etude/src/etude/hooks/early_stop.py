"""Ends a run early: if it no longer improves (EarlyStop), or before its time is up (TimeBudget)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from etude.core.hook import Hook
from etude.errors import REQUEUE, ConfigError
from etude.errors.spelling import suggest
from etude.metrics.direction import improves, lower_is_better
from etude.units import Amount, parse_written

if TYPE_CHECKING:
    from etude.core.run import Run


class EarlyStop(Hook):
    """Stops when ``metric`` has not improved by more than ``by`` for ``patience`` evaluations in a row.

    ``mode`` (``min`` or ``max``) says which way is better; without it, losses and errors should fall and the rest rise.
    ``target`` stops at once when it is reached.
    """

    def __init__(
        self, metric: str = "loss", patience: int = 5, by: float = 0.0, mode: str = "", target: float | None = None
    ) -> None:
        if patience < 1:
            raise ConfigError(f"EarlyStop: patience is {patience}; it must be at least 1")
        self.metric, self.patience, self.by, self.target = metric, patience, by, target
        self.lower = lower_is_better(metric, mode)
        self.best: float | None = None
        self.best_step = 0
        self.waited = 0

    @property
    def watches(self) -> tuple[str, ...]:
        """The results of an evaluation that it needs."""
        return (self.metric,)

    def after_eval(self, run: Run) -> None:
        if self.metric not in run.metrics:
            hint = suggest(self.metric, run.metrics)
            raise ConfigError(f"EarlyStop: no evaluation gives a metric {self.metric!r}", hint=hint)
        value = run.metrics[self.metric]
        if improves(value, self.best, lower=self.lower, by=self.by):
            self.best, self.best_step, self.waited = value, run.done, 0
        else:
            self.waited += 1
        if self.target is not None and (value <= self.target if self.lower else value >= self.target):
            run.stop(f"{self.metric} has reached {value:.4g}")
        elif self.waited >= self.patience:
            run.stop(f"{self.metric} has not improved since step {self.best_step}")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_step, self.waited = state["best"], int(state["best_step"]), int(state["waited"])


class TimeBudget(Hook):
    """Stops the run after ``limit`` (``2h``, ``90min``) of wall-clock time.

    The clock starts with this process. With ``total``, a resumed run adds the time of earlier processes.
    """

    def __init__(self, limit: str | Amount, total: bool = False, exit_code: int = REQUEUE) -> None:
        amount = parse_written(limit, unit="second")
        if amount.unit != "second":
            raise ConfigError(f"TimeBudget: {amount} is not a time", hint="write 2h, 90min or 30s")
        self.limit, self.total, self.exit_code = amount.value, total, exit_code
        self._before = 0.0
        self._clock: Callable[[], float] = monotonic
        self._began = monotonic()

    def before_train(self, run: Run) -> None:
        """Switch to the clock of the run, which all ranks share; it may start at another value."""
        passed = self._clock() - self._began
        self._clock = run.clock
        self._began = run.clock() - (passed if run.peers is None else 0.0)

    def after_step(self, run: Run) -> None:
        if self._seconds() >= self.limit:
            run.stop(f"the time budget of {self.limit:g} s is used up", exit_code=self.exit_code)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self._seconds()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.total:
            self._before = float(state["seconds"])

    def _seconds(self) -> float:
        return self._before + self._clock() - self._began
