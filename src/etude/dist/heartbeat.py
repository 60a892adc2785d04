"""A thread in every rank that tells the launcher how it goes: what it does, and for how long nothing has moved.

A step of training does nothing for it. Only when nothing moves is the stack of the main thread looked at: it says
whether the rank loads data, is in a hook, computes, or only waits for the others. So it is not the one who waits that
is blamed. When the launcher is gone, the rank ends too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from etude.dist import reports

_SHOWN = 12
#: Parts of file names, innermost frame first → what a rank in it does, and whether it waits for others.
_DOING = (
    ("/torch/distributed/", "waits for the other ranks", True),
    ("/torch/nn/parallel/distributed.py", "waits for the other ranks", True),
    ("/etude/dist/", "waits for the other ranks", True),
    ("/torch/autograd/", "is in the backward pass", True),
    ("/etude/data/", "loads data", False),
    ("/etude/checkpoint/", "saves", False),
    ("/etude/core/update.py", "is in the update", False),
)
_NEVER_ALONE = "/nn/parallel/distributed.py"


class Heartbeat:
    """``mark`` changes with every batch; ``steps`` is how many are done; ``hook_of`` names the hook of a frame."""

    def __init__(
        self,
        *,
        mark: Callable[[], Any],
        steps: Callable[[], int],
        hook_of: Callable[[FrameType], str],
        interval: float = 0.5,
    ) -> None:
        self.mark, self.steps, self.hook_of, self.interval = mark, steps, hook_of, interval
        self._main = threading.main_thread().ident or 0
        self._launcher = int(os.environ.get(reports.LAUNCHER, "0"))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="etude-heartbeat", daemon=True)

    def start(self) -> None:
        reports.steps = self.steps
        if reports.folder() is not None:
            reports.beat(step=self.steps(), doing="trains")
            self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen, since = self.mark(), time.monotonic()
        while not self._over.wait(self.interval):
            self._follow_launcher()
            now = self.mark()
            if now != seen:
                seen, since = now, time.monotonic()
            still = time.monotonic() - since
            doing, waiting, stack = self._look() if still > 2 * self.interval else ("trains", False, "")
            reports.beat(step=self.steps(), still=still, doing=doing, waiting=waiting, stack=stack)

    def _follow_launcher(self) -> None:
        if self._launcher:
            try:
                os.kill(self._launcher, 0)
            except ProcessLookupError:
                os._exit(8)

    def _look(self) -> tuple[str, bool, str]:
        frame = sys._current_frames().get(self._main)
        stack = "".join(traceback.format_stack(frame)[-_SHOWN:]) if frame is not None else ""
        return *classify(frame, self.hook_of), stack


def classify(frame: FrameType | None, hook_of: Callable[[FrameType], str]) -> tuple[str, bool]:
    """Return what the thread with this stack does, and whether it waits for other ranks."""
    innermost = frame
    while frame is not None:
        hook = hook_of(frame)
        if hook:
            return f"is in {hook}", False
        name = frame.f_code.co_filename.replace(os.sep, "/")
        for part, doing, waits in _DOING:
            if part in name and not (part.endswith(_NEVER_ALONE) and frame is not innermost):
                return doing, waits
        frame = frame.f_back
    return "does something else", False
