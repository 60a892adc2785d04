"""Runs calls in their own thread, so that a slow or broken service never stops or slows training."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from etude.errors import printable

#: Calls that may wait, and seconds that the end of a run waits for one call: any, the first, which may take a login, or
#: the last, and one that sends files.
WAITING, PATIENCE, OPENING, SENDING = 1000, 10.0, 60.0, 600.0
#: Seconds that the end of a run waits in all, unless files are sent, and seconds after which it says so.
ENDING, SILENCE = 120.0, 1.5
#: Seconds between two rounds of calls. Many small calls would take the interpreter from training as many times.
ROUND = 2.0
#: Seconds without a call after which ``idle`` is called.
_QUIET = 15.0
_current = threading.local()
_open: weakref.WeakSet[Outbox] = weakref.WeakSet()
#: Those whose end a run waits for, and has not yet said so.
_leaving: weakref.WeakSet[Outbox] = weakref.WeakSet()


class Outbox:
    """Makes the calls for the service ``name`` in order. ``put`` never waits: what does not fit is dropped and counted.

    Calls are gathered and made in rounds, the first at once. ``after`` is called at the end of each round, ``idle``
    when nothing came for a while. A call that raises switches the service off with one warning.
    """

    def __init__(
        self, name: str, *, after: Callable[[], object] | None = None, idle: Callable[[], object] | None = None
    ) -> None:
        self.name, self.dropped = name, 0
        self._after, self._idle = after, idle
        #: When it was put, and the call.
        self._calls: deque[tuple[float, Callable[[], object]]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._last: Callable[[], object] | None = None
        self._failed = ""
        self._warned = False
        #: Seconds that the current call may take before it counts as stuck, and the least that any call gets.
        self._patience, self._least = OPENING, 0.0
        #: When the thread began the call that it makes; None while it has nothing to do.
        self._since: float | None = None
        self._heard = time.monotonic()
        self._opened = False
        #: When the run came to its end.
        self._left: float | None = None
        self._say: Callable[[str], object] = _print
        # A daemon: a service that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name=f"etude-{name}", daemon=True)

    def put(self, call: Callable[..., object], *args: Any, **settings: Any) -> None:
        """Queue ``call(*args, **settings)``."""
        if self._failed:
            self.dropped += 1
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self.name} failed and is switched off; training continues: {self._failed}", stacklevel=3
                )
            return
        if len(self._calls) < WAITING:
            self._calls.append((time.time(), partial(call, *args, **settings)))
        else:
            self.dropped += 1
            if self.dropped == 1:
                warnings.warn(f"{self.name} is too slow: records are dropped, training continues", stacklevel=3)
        if self._thread.ident is None:
            self._thread.start()
            _open.add(self)
        # Half full: the next round does not wait for its time.
        elif 2 * len(self._calls) == WAITING:
            self._wake.set()

    def send(self, call: Callable[..., object], *args: Any, at_once: bool = False) -> None:
        """Queue a call that sends files; the end of the run waits for it.

        Without ``at_once`` the service may send in the background and wait in a later call, so those may take as long.
        """
        self.put(self._patiently, at_once, call, *args)

    def _patiently(self, at_once: bool, call: Callable[..., object], *args: Any) -> None:
        self._patience = SENDING
        if not at_once:
            self._least = SENDING
        call(*args)

    def begin(self, package: str, call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        """Open the service. Wait only if the program has imported ``package``, because it may use it next."""
        if package in sys.modules:
            return self.ask(call, *args, **settings)
        self.put(call, *args, **settings)
        return None

    def flush(self) -> None:
        """Wait until all calls so far were made, as long as the end of a run would."""
        if threading.current_thread() is not self._thread:  # which would wait for itself
            self.ask(lambda: None)

    def ask(self, call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        """Queue a call and wait for its result, as long as the end of a run would; None if there is none."""
        answer: list[Any] = []
        done = threading.Event()

        def answered() -> None:
            try:
                answer.append(call(*args, **settings))
            finally:
                done.set()

        self.put(answered)
        self._wake.set()
        while self._thread.is_alive() and not self._is_stuck() and not done.wait(0.05):
            pass
        return answer[0] if answer else None

    def leave(self, last: Callable[[], object] | None, say: Callable[[str], object] | None = None) -> None:
        """Send what is left, then ``last``, the final call, without waiting: :meth:`close` waits.

        ``say`` gets the line that announces a wait.
        """
        self._last, self._closing, self._say = last, True, say or _print
        self._left = time.monotonic()
        _open.discard(self)
        _leaving.add(self)
        self._wake.set()

    def close(self, last: Callable[[], object] | None = None) -> None:
        """Wait a little for what is left and for ``last``, the final call, then say what was lost.

        A wait that is longer than a moment is announced once, for all services whose end the run waits for.
        """
        if not self.is_left:
            self.leave(last)
        quiet_until = time.monotonic() + SILENCE
        while self._thread.is_alive() and not self._is_stuck() and not self._is_late():
            self._thread.join(0.05)
            if self in _leaving and time.monotonic() > quiet_until:
                _announce(self._say)
        _leaving.discard(self)
        if self._thread.is_alive():
            self.dropped += len(self._calls)
            lost = f"{self.dropped} records were not sent" if self.dropped else "its last call did not end"
            warnings.warn(f"{self.name} does not answer; {lost}", stacklevel=3)
        elif self._failed and not self._warned:
            warnings.warn(f"{self.name} failed: {self._failed}", stacklevel=3)
        elif self.dropped:
            warnings.warn(f"{self.name}: {self.dropped} records were dropped", stacklevel=3)

    @property
    def is_left(self) -> bool:
        """Return whether :meth:`leave` was called."""
        return self._left is not None

    @property
    def is_done(self) -> bool:
        """Return whether all calls were made and none failed."""
        return not (self._failed or self.dropped or self._thread.is_alive())

    def _is_stuck(self) -> bool:
        since = self._since
        return since is not None and time.monotonic() - since > self._patience

    def _is_late(self) -> bool:
        return (
            self._left is not None and self._patience < SENDING and time.monotonic() - self._left > max(ENDING, OPENING)
        )

    def _waits_for(self) -> str:
        """Return what the end of a run waits for, and for how long at most."""
        if not self._opened:
            return f"{self.name} (still opening, {OPENING:.0f} s at most)"
        if self._patience >= SENDING:
            return f"{self.name} (sends files, {SENDING:.0f} s at most)"
        return f"{self.name} ({ENDING:.0f} s at most)"

    def _serve(self) -> None:
        try:
            while not self._make_round():
                self._wake.wait(ROUND)
                self._wake.clear()
            if self._last is not None:
                self._patience = max(self._least, OPENING)
                self._make(self._last)
        except Exception as error:
            self._failed = printable(f"{type(error).__name__}: {error}")[:300]

    def _make_round(self) -> bool:
        """Make the calls that wait; return whether they were the last."""
        closing = self._closing  # read first: nothing comes after it
        if self._calls:
            began = time.monotonic()
            while self._calls:
                _current.put_at, call = self._calls.popleft()
                self._make(call)
                if time.monotonic() - began >= ROUND:  # a service that gathers values would lose them in a kill
                    self._end_round()
                    began = time.monotonic()
            self._end_round()
        elif self._idle is not None and not closing and time.monotonic() - self._heard > _QUIET:
            self._make(self._idle)
            self._heard = time.monotonic()
        return closing

    def _end_round(self) -> None:
        _current.put_at = 0.0
        if self._after is not None:
            self._make(self._after)
        self._heard = time.monotonic()

    def _make(self, call: Callable[[], object]) -> None:
        self._since = time.monotonic()
        call()
        self._opened = True
        self._since, self._patience = None, max(self._least, PATIENCE)


def put_time() -> float:
    """Return when the call that an outbox makes in this thread was put, in seconds since 1970; elsewhere, now."""
    return float(getattr(_current, "put_at", 0.0) or time.time())


def _announce(say: Callable[[str], object]) -> None:
    """Print once what the end of a run waits for."""
    waiting = sorted(outbox._waits_for() for outbox in _leaving if outbox._thread.is_alive())
    _leaving.clear()
    if waiting:
        say(f"waiting for {', '.join(waiting)}")


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@atexit.register
def _close_all() -> None:
    """Send what is left of services that nobody closed, as after a failure."""
    for outbox in list(_open):
        outbox.close()
