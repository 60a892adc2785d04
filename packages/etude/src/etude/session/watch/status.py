"""Keeps ``status.json`` in a run's folder: its state, progress, best values, and where its time went."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.config.files import replace_text
from etude.config.tree import Tree, dotted
from etude.core.run import Run
from etude.errors import ConfigError, Stopped, printable
from etude.events.record import TIMING_PREFIXES, Record
from etude.metrics.direction import improves, is_scored, lower_is_better
from etude.session.watch import lives
from etude.session.watch.wall_time import START
from etude.units import Amount, parse

NAME = "status.json"
#: Seconds between two writes during the run.
_PAUSE = 10.0
_MOST_WARNINGS = 50
_BY_CHANCE = re.compile(r"(.+?) does not have a deterministic implementation")


class Status:
    """Writes ``status.json`` as one of the run's writers. The file is replaced as a whole, so that a reader never
    sees half of it."""

    def __init__(
        self,
        folder: Path,
        run: Run,
        *,
        time_spent: Mapping[str, float],
        plan: Mapping[str, Any],
        began: float | None = None,
        before: lives.Before | None = None,
        whole_process: bool = False,
        slow: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """``before``: what is known of the last process of a run that is continued. ``whole_process``: the run's time
        begins with this process. ``slow``: returns what is known of its slow steps."""
        self.path, self.run = folder / NAME, run
        self._clock = time.monotonic() if began is None else began
        self._since = time.time()
        self._written = -math.inf
        self._last: dict[str, float] = {}
        self._best: dict[str, tuple[float, int]] = {}
        self._plan = dict(plan)
        self._warnings: list[str] = []
        self._resumed, self._first = False, 0
        #: The ``status.json`` of earlier processes of a resumed run.
        self._before: dict[str, Any] = {}
        self._show = warnings.showwarning
        self._time = time_spent  # another thread adds to it during the run
        self._slow = slow
        self._last_life = before
        self._whole_process = whole_process

    def begin(self) -> None:
        """Mark the run as running, and collect warnings from now on."""
        self._first = self.run.step
        self._resumed = self._first > 0
        if self._resumed:
            self._before = run_files.status(self.path.parent)
        if self._last_life is not None:
            lives.go_on(self.path.parent, self._last_life)
        else:
            lives.begin_anew(self.path.parent)
        self._life = lives.Life(self._first, began=self._clock, whole_process=self._whole_process)
        self._write("running")
        shown = warnings.showwarning
        self._show = shown

        def note(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **more: Any) -> None:
            if len(self._warnings) < _MOST_WARNINGS:
                self._warnings.append(printable(str(message))[:500])
            shown(message, category, filename, lineno, *rest, **more)

        self._note = warnings.showwarning = note

    def write(self, record: Record) -> None:
        for name, value in record.values.items():
            if not name.startswith(TIMING_PREFIXES):
                self._take(f"{record.split}/{name}", value, record.step)
        if time.monotonic() - self._written > _PAUSE:
            self._write("running")

    def note_start(self) -> None:
        """Write down what the start took: a process that is killed soon has no other moment for it."""
        self._write("running")

    def end(self, error: BaseException | None, *, note: str = "") -> None:
        """Record how the run ended. Raises nothing, because this is the last thing that happens."""
        self._warnings += [note] if note else []
        # Somebody else may have put a function of their own in its place since.
        if warnings.showwarning is getattr(self, "_note", None):
            warnings.showwarning = self._show
        stopped = isinstance(error, Stopped | KeyboardInterrupt) or (error is None and self.run.exit_code)
        self._write("interrupted" if stopped else "failed" if error is not None else "finished", error)

    def by_chance(self) -> list[str]:
        """Return the operations that torch has warned about under ``train.deterministic: warn``."""
        found = [_BY_CHANCE.match(text) for text in self._warnings]
        return list(dict.fromkeys(match[1] for match in found if match))

    def close(self) -> None: ...

    def _take(self, name: str, value: float, step: int) -> None:
        self._last[name] = value
        best = self._best.get(name)
        if is_scored(name) and improves(value, best[0] if best else None, lower=lower_is_better(name)):
            self._best[name] = (value, step)

    def _write(self, state: str, error: BaseException | None = None) -> None:
        self._written = time.monotonic()
        text = json.dumps(self._content(state, error), ensure_ascii=False, allow_nan=False)
        with suppress(OSError):  # a full disk costs the run its status, not its training
            replace_text(self.path, text + "\n")

    def _seconds(self) -> float:
        """Return how long the run has taken in all attempts; one that found nothing left to train does not count."""
        own = 0.0 if self._resumed and self.run.done == self._first else time.monotonic() - self._clock
        return own + float(self._before.get("seconds", 0.0))

    def _times(self) -> dict[str, float]:
        """Return where the time went, in all attempts of the run."""
        before: Mapping[str, float] = self._before.get("time", {})
        if self._resumed and self.run.done == self._first:
            return dict(before)
        now = dict(self._time)
        return {name: before.get(name, 0.0) + now.get(name, 0.0) for name in {**before, **now}}

    def _content(self, state: str, error: BaseException | None) -> dict[str, Any]:
        run = self.run
        content: dict[str, Any] = {
            "state": state,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": round(self._since, 3),
            "seen": round(time.time(), 3),
            "began": self._before.get("began", round(self._since, 3)),
            "seconds": round(self._seconds(), 3),
            "total": run.total_steps,
            "dialect": run.plan.dialect if run.plan is not None else "native",
            "plan": self._plan,
            "time": {name: round(seconds, 3) for name, seconds in self._times().items()},
            "life": self._life.record(run.done, state, dict(self._time), START),
            "warnings": self._warnings,
        }
        if slow := self._slow() or self._before.get("slow"):
            content["slow"] = slow
        if run.runner is None and not self._resumed:  # else readers take what was recorded elsewhere from its files
            content |= {"step": run.done, "last": _finite(self._last), "best": self._best}
        if error is not None:
            content["error"] = printable(f"{type(error).__name__}: {error}")[:2000]
        if run.stopping:
            content["reason"] = printable(run.stopping)
        return content


def write_facts(folder: Path, run: Run, tree: Tree | None) -> None:
    """Write ``facts.json``: parameter groups, hooks, and the file and line of each value of the plan."""
    groups: list[dict[str, Any]] = []
    for name, optimizer in run.optimizers.items():
        for index, group in enumerate(optimizer.param_groups):
            numbers = {key: value for key, value in group.items() if type(value) in (int, float)}
            parameters = group["params"]
            own = {"optimizer": name or type(optimizer).__name__, "name": str(group.get("name", index))}
            groups.append(own | {"tensors": len(parameters), "numbers": sum(p.numel() for p in parameters)} | numbers)
    hooks = [
        {
            "name": hook.name,
            "priority": hook.priority,
            "every": str(hook.every or ""),
            "steps": _steps(hook.every, run.steps_per_epoch),
            "points": list(hook.calls()),
        }
        for hook in run.hooks
    ]
    places = {dotted(path): str(tree.place(*path)) for path, _ in tree.walk()} if tree is not None else {}
    text = json.dumps({"groups": groups, "hooks": hooks, "places": places}, default=str)
    with suppress(OSError):
        (folder / "facts.json").write_text(text + "\n", encoding="utf-8", errors="replace")


def _steps(every: str | int | Amount | None, steps_per_epoch: int | None) -> int | None:
    """Return after how many steps a hook acts again; None for one that acts by the clock, or at other points."""
    try:
        return parse(every).steps(steps_per_epoch) if every is not None else None
    except (ConfigError, ValueError):
        return None


def _finite(values: Mapping[str, float]) -> dict[str, float | str]:
    return {name: value if math.isfinite(value) else str(value) for name, value in values.items()}
