"""TimeBudget: stop in good order before somebody else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from etude.core.hook import Hook
from etude.errors import ConfigError
from etude.units import Amount, parse

if TYPE_CHECKING:
    from etude.core.run import Run

#: For a scheduler: stopped with its state saved, may be queued again.
REQUEUE = 75


class TimeBudget(Hook):
    """Stops the run after ``limit`` (``2h``, ``90min``) of wall-clock time.

    The clock starts with this process; with ``total`` it goes on where the run that is resumed had stopped.
    """

    def __init__(self, limit: str | float | Amount, total: bool = False, exit_code: int = REQUEUE) -> None:
        amount = parse(limit, default="second")
        if amount.unit != "second":
            raise ConfigError(f"TimeBudget: {amount} is not a time", hint="write 2h, 90min or 30s")
        self.limit, self.total, self.exit_code = amount.value, total, exit_code
        self._before = 0.0
        self._clock: Callable[[], float] = monotonic
        self._began = monotonic()

    def before_train(self, run: Run) -> None:
        """The clock of the run, which all ranks of one go by; it may count from elsewhere."""
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
