"""Alerts: report a loss that jumps and a step that takes far too long, without stopping."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from etude.core.hook import Hook
from etude.events.record import Record

if TYPE_CHECKING:
    from etude.core.run import Run

_SHARE = 0.1


class Ear:
    """Receives every logged loss as a writer, after the other writers."""

    def __init__(self, hear: Callable[[float], None]) -> None:
        self._hear = hear

    def write(self, record: Record) -> None:
        if record.split == "train" and "loss" in record.values:
            self._hear(record.values["loss"])

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Alerts(Hook):
    """Records an event when a logged loss is ``deviations`` above the usual, or a step takes ``times`` as long.

    The run is not stopped. Losses are checked when they are logged, so that no step waits for them. The first
    ``settle`` losses and steps only define what is usual. A step of less than a second is never slow.
    """

    priority = 65

    def __init__(self, deviations: float = 10.0, times: float = 10.0, settle: int = 10) -> None:
        self.deviations, self.times, self.settle = deviations, times, settle
        self.mean = self.variance = 0.0
        self.seen = self._steps = 0
        self._usual_seconds = self._began = 0.0
        self._ear: Ear | None = None

    def before_train(self, run: Run) -> None:
        if self._ear not in run.events.writers:
            self._ear = Ear(lambda loss: self._look_at_loss(run, loss))
            run.events.writers.append(self._ear)

    def before_step(self, run: Run) -> None:
        self._began = perf_counter()

    def after_step(self, run: Run) -> None:
        self._look_at_time(run, perf_counter() - self._began)

    def _look_at_loss(self, run: Run, loss: float) -> None:
        bound = self.mean + self.deviations * math.sqrt(self.variance)
        if self.seen >= self.settle and loss > max(bound, 1.1 * self.mean):
            warnings.warn(
                f"the loss has jumped to {loss:.4g} at step {run.done}; {self.mean:.4g} was usual", stacklevel=2
            )
            run.events.write({"loss_spike": loss}, step=run.done, epoch=run.last_epoch, split="event")
        if math.isfinite(loss):
            share = max(_SHARE, 1 / (self.seen + 1))
            self.variance = (1 - share) * (self.variance + share * (loss - self.mean) ** 2)
            self.mean += share * (loss - self.mean)
            self.seen += 1

    def _look_at_time(self, run: Run, seconds: float) -> None:
        if self._steps >= self.settle and seconds > max(1.0, self.times * self._usual_seconds):
            usual = self._usual_seconds
            warnings.warn(f"step {run.done} took {seconds:.3g} s; {usual:.3g} s were usual", stacklevel=2)
            run.events.write({"time/slow_step": seconds}, step=run.done, epoch=run.last_epoch, split="event")
            return
        self._usual_seconds += max(_SHARE, 1 / (self._steps + 1)) * (seconds - self._usual_seconds)
        self._steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "variance": self.variance, "seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean, self.variance, self.seen = float(state["mean"]), float(state["variance"]), int(state["seen"])
