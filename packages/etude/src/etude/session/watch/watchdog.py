"""Watches a run from a thread and reports when it makes no progress: in which hook, at which line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from etude.core.run import Run
from etude.dist.jobs import reports
from etude.dist.jobs.heartbeat import Heartbeat, stack_of

#: Seconds without a batch, in training or evaluation, before a report.
PATIENCE = 300.0
_SHOWN = 8


class Watchdog:
    """Looks at the run a few times per ``patience``, at no cost for a training step. Reports each problem once."""

    def __init__(self, run: Run, *, say: Callable[[str], Any], patience: float | None = None) -> None:
        self.run, self.say, self.patience = run, say, PATIENCE if patience is None else patience
        #: Called as often, for what a run that keeps its own records does not look at.
        self.look: Callable[[], None] | None = None
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="etude-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen, since, reported = mark(self.run), time.monotonic(), False
        while not self._over.wait(self.patience / 10):
            if self.look is not None:
                self.look()
            now = mark(self.run)
            if now != seen:
                seen, since, reported = now, time.monotonic(), False
            elif not reported and time.monotonic() - since >= self.patience:
                reported = True
                self._tell()

    def _tell(self) -> None:
        hook = hook_at_work(self.run) or "no hook is at work"
        self.say(f"nothing has moved for {self.patience:g} s, after {self.run.done} steps: {hook}")
        for place in reversed(stack_of(self._watched)[:_SHOWN]):
            for part in str(place).splitlines():
                self.say(f"  {part.strip()}")


def mark(run: Run) -> tuple[int, ...]:
    """Return a value that changes with every batch, of training and of evaluation."""
    return run.step, run.done, run.epoch, id(run.batch), id(run.outputs)


def start_pulse(run: Run) -> Heartbeat:
    """Start the heartbeat of one rank of a run."""
    if run.folder is not None:
        reports.share_beats(run.folder)
    pulse = Heartbeat(mark=lambda: mark(run), steps=lambda: run.done, hook=lambda: hook_at_work(run))
    pulse.start()
    return pulse


def hook_at_work(run: Run) -> str:
    """Return the hook that is at work and its point as its author calls it, ``hook Ema at after_step``, or nothing."""
    found = run.hooks.acting(run.acting)
    return f"hook {found[0].name} at {found[0].word_for(found[1])}" if found is not None else ""
