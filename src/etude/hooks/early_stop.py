"""EarlyStop: end a run that no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.core.hook import Hook
from etude.errors import ConfigError, suggest
from etude.metrics.direction import improves, lower_is_better

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
