"""A thread that notices when nothing moves any more, and says where it stands still: in which hook, at which line."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from etude.core.hook import PointCalls
from etude.core.run import Run
from etude.dist.heartbeat import Heartbeat

#: Seconds without a batch, in training or evaluation, before something is said.
PATIENCE = 300.0
_SHOWN = 8


class Watchdog:
    """Looks at the run a few times per ``patience``; a step of training does nothing for it. Says a thing once."""

    def __init__(self, run: Run, *, say: Callable[[str], Any], patience: float | None = None) -> None:
        self.run, self.say, self.patience = run, say, PATIENCE if patience is None else patience
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="etude-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen, since, reported = self._mark(), time.monotonic(), False
        while not self._over.wait(self.patience / 10):
            now = self._mark()
            if now != seen:
                seen, since, reported = now, time.monotonic(), False
            elif not reported and time.monotonic() - since >= self.patience:
                reported = True
                self._tell()

    def _mark(self) -> tuple[int, ...]:
        return mark(self.run)

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._watched)
        self.say(f"nothing has moved for {self.patience:g} s, after {self.run.done} steps: {_acting(frame)}")
        for line in traceback.format_stack(frame)[-_SHOWN:] if frame is not None else ():
            for part in line.rstrip().splitlines():
                self.say(f"  {part.strip()}")


def mark(run: Run) -> tuple[int, ...]:
    """Return a value that changes with every batch, of training and of evaluation."""
    return run.step, run.done, run.epoch, id(run.batch), id(run.outputs)


def pulse(run: Run) -> Heartbeat:
    """The heartbeat of one rank of a run."""
    return Heartbeat(mark=lambda: mark(run), steps=lambda: run.done, hook_of=hook_of)


def hook_of(frame: FrameType) -> str:
    """The hook that this very frame calls; empty where it calls none."""
    owner = frame.f_locals.get("self")
    if isinstance(owner, PointCalls) and frame.f_locals.get("call") is not None:
        return owner.words_for(frame.f_locals["call"])
    return ""


def _acting(frame: FrameType | None) -> str:
    """The innermost hook on the stack, or that none is at work."""
    while frame is not None:
        if words := hook_of(frame):
            return words
        frame = frame.f_back
    return "no hook is at work"
