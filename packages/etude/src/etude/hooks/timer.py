"""Timer: records where the time of a run goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from etude.core.hook import Hook

if TYPE_CHECKING:
    from etude.core.run import Run


class Gauge:
    """Measures a value when it is read, so that a training step does not pay for it."""

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read

    def __float__(self) -> float:
        return self.read()


class Timer(Hook):
    """Records seconds per step in the update and waiting for data, steps and samples per second, and memory.

    Each record covers the steps since the previous one. Between two steps, evaluations count as evaluation and
    everything else (data, saving) as waiting. The clock is read twice a step; nothing is computed until a record is
    written.
    """

    priority = 20

    def __init__(self) -> None:
        self.totals = {"step": 0.0, "data": 0.0, "evaluation": 0.0}
        self.steps = 0
        #: When the last step had its batch.
        self.began = perf_counter()
        self._fresh = True
        self._begin_window()
        self._measured: dict[str, float] = {}
        self._gauges = {
            "time/step": Gauge(lambda: self._measure()["step"]),
            "time/data": Gauge(lambda: self._measure()["data"]),
            "throughput/steps_per_second": Gauge(lambda: self._measure()["rate"]),
            "memory/megabytes": Gauge(_megabytes),
        }

    def before_train(self, run: Run) -> None:
        size = getattr(run.data.get("train"), "batch_size", None)
        if isinstance(size, int):
            self._gauges["throughput/samples_per_second"] = Gauge(lambda: size * self._measure()["rate"])
        self._ended = perf_counter()
        self._begin_window()

    def before_step(self, run: Run) -> None:
        self.began = now = perf_counter()
        self.totals["data"] += now - self._ended

    def after_step(self, run: Run) -> None:
        self._ended = now = perf_counter()
        self.totals["step"] += now - self.began
        self.steps += 1
        if self._fresh:
            self._put_gauges(run)

    def before_eval(self, run: Run) -> None:
        self._eval_began = perf_counter()

    def after_eval(self, run: Run) -> None:
        passed = perf_counter() - self._eval_began
        self.totals["evaluation"] += passed
        self._ended += passed

    def _put_gauges(self, run: Run) -> None:
        """Let the next record read the gauges."""
        self._fresh = False
        for name, gauge in self._gauges.items():
            run.events.put(name, gauge, last=True)

    def _begin_window(self) -> None:
        self._window_totals, self._window_steps = dict(self.totals), self.steps

    def _measure(self) -> dict[str, float]:
        """Return means over the steps since the last reading. Without a new step, return the same again."""
        steps = self.steps - self._window_steps
        if steps or not self._measured:
            means = {name: (self.totals[name] - self._window_totals[name]) / max(1, steps) for name in ("step", "data")}
            seconds = means["step"] + means["data"]
            self._measured = means | {"rate": 1.0 / seconds if seconds > 0 else 0.0}
            self._begin_window()
            self._fresh = True
        return self._measured


def _megabytes() -> float:
    """Return the peak memory: of the accelerator if there is one, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    import resource

    # macOS counts bytes, Linux kilobytes.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
