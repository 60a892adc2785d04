"""Runs calls in a thread of their own, so that a slow, lost or broken service never stops or slows training."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from etude.errors import printable

#: Calls that may wait, and seconds that the end of a run waits: for a service that answers nothing, and for its first
#: answer, which may take a login, or its last, which may be the upload of a checkpoint.
WAITING, PATIENCE, OPENING = 1000, 10.0, 60.0
_PAUSE = 15.0


class Outbox:
    """Calls for the service ``name``, made in order. ``put`` never waits: what does not fit is dropped and counted.

    A call that raises switches the service off with one warning. ``idle`` is called when nothing came for a while.
    """

    def __init__(self, name: str, *, idle: Callable[[], object] | None = None) -> None:
        self.name, self.dropped = name, 0
        self._idle = idle
        self._queue: queue.Queue[Callable[[], object] | None] = queue.Queue(WAITING)
        self._last: Callable[[], object] | None = None
        self._failed = ""
        self._warned = False
        self._answered = self._ending = False
        self._moved = time.monotonic()
        self._thread = threading.Thread(target=self._serve, name=f"etude-{name}", daemon=True)

    def put(self, call: Callable[..., object], *args: Any, **settings: Any) -> None:
        """Have ``call(*args, **settings)`` made soon."""
        if self._failed:
            self.dropped += 1
            if not self._warned:
                self._warned = True
                warnings.warn(f"{self.name} failed and is switched off; training goes on: {self._failed}", stacklevel=3)
            return
        if self._thread.ident is None:
            self._moved = time.monotonic()
            self._thread.start()
        try:
            self._queue.put_nowait(partial(call, *args, **settings))
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                warnings.warn(f"{self.name} is too slow: records are dropped, training goes on", stacklevel=3)

    def close(self, last: Callable[[], object] | None = None) -> None:
        """Wait a little for what is left and for ``last``, the final call, then say what was lost."""
        self._last = last
        asked = False
        while self._thread.is_alive() and not self._is_stuck():
            if not asked:
                with suppress(queue.Full):
                    self._queue.put(None, timeout=0.05)
                    asked = True
            self._thread.join(0.05)
        if self._thread.is_alive():
            self.dropped += sum(call is not None for call in list(self._queue.queue))
            lost = f"{self.dropped} records were not sent" if self.dropped else "its last call is left behind"
            warnings.warn(f"{self.name} does not answer; {lost}", stacklevel=3)
        elif self._failed and not self._warned:
            warnings.warn(f"{self.name} failed: {self._failed}", stacklevel=3)
        elif self.dropped:
            warnings.warn(f"{self.name}: {self.dropped} records were dropped", stacklevel=3)

    def _is_stuck(self) -> bool:
        return time.monotonic() - self._moved > (PATIENCE if self._answered and not self._ending else OPENING)

    def _serve(self) -> None:
        try:
            while (call := self._next()) is not None:
                call()
                self._answered, self._moved = True, time.monotonic()
            if self._last is not None:
                self._ending = True
                self._last()
        except Exception as error:
            self._failed = printable(f"{type(error).__name__}: {error}")[:300]

    def _next(self) -> Callable[[], object] | None:
        while True:
            try:
                return self._queue.get(timeout=_PAUSE)
            except queue.Empty:
                if self._idle is not None:
                    self._idle()
