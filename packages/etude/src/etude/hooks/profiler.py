"""Profiler: traces some steps with torch.profiler."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from etude.core.hook import Hook
from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.core.run import Run


class Profiler(Hook):
    """Traces ``steps`` steps from ``first`` on, after one warm-up step.

    Leaves ``profile/trace.json`` (for Perfetto or chrome://tracing) and ``profile/table.txt`` in the run's folder. A
    failure to profile is no reason to stop a run.
    """

    essential = False

    def __init__(self, first: int = 10, steps: int = 5, memory: bool = False, rows: int = 30) -> None:
        if first < 1 or steps < 1:
            raise ConfigError("Profiler: first and steps must be at least 1")
        self.first, self.steps, self.memory, self.rows = first, steps, memory, rows
        self._profile: Any = None
        self._traced = False

    def before_step(self, run: Run) -> None:
        if self._profile is None and run.step == self.first - 1:
            activities = [torch.profiler.ProfilerActivity.CPU]
            activities += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            schedule = torch.profiler.schedule(wait=0, warmup=1, active=self.steps, repeat=1)
            self._profile = torch.profiler.profile(
                activities=activities,
                schedule=schedule,
                profile_memory=self.memory,
                on_trace_ready=lambda profile: self._write(profile, run),
            )
            self._profile.start()
            self._traced = True

    def after_step(self, run: Run) -> None:
        if self._profile is not None:
            self._profile.step()
            if run.step >= self.first - 1 + self.steps:
                self._end()

    def after_train(self, run: Run) -> None:
        self._end()
        if not self._traced and run.error is None and not run.exit_code:
            text = f"Profiler traced nothing: it begins at step {self.first}, and the run ended at step {run.done}"
            warnings.warn(text, stacklevel=2)

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop()

    def _write(self, profile: Any, run: Run) -> None:
        if run.folder is None:
            return
        folder = run.folder / "profile"
        folder.mkdir(parents=True, exist_ok=True)
        profile.export_chrome_trace(str(folder / "trace.json"))
        table = profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=self.rows)
        (folder / "table.txt").write_text(table)
