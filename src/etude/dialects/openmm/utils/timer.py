"""Stop-watches."""

from __future__ import annotations

import time


class TimerError(Exception):
    """Asked a stop-watch that does not run."""


class Timer:
    """``with Timer(): ...`` prints the seconds; or ask :meth:`since_start` and :meth:`since_last_check`."""

    def __init__(self, start: bool = True, print_tmpl: str | None = None) -> None:
        self._is_running = False
        self.print_tmpl = print_tmpl or "{:.3f}"
        if start:
            self.start()

    @property
    def is_running(self) -> bool:
        return self._is_running

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        print(self.print_tmpl.format(self.since_last_check()))
        self._is_running = False

    def start(self) -> None:
        if not self._is_running:
            self._t_start = time.time()
            self._is_running = True
        self._t_last = time.time()

    def since_start(self) -> float:
        self._require_running()
        self._t_last = time.time()
        return self._t_last - self._t_start

    def since_last_check(self) -> float:
        self._require_running()
        passed = time.time() - self._t_last
        self._t_last = time.time()
        return passed

    def _require_running(self) -> None:
        if not self._is_running:
            raise TimerError("timer is not running")


#: The timers of :func:`check_time`, by their ids.
_g_timers: dict[str, Timer] = {}


def check_time(timer_id: str) -> float:
    """Seconds since the last call with this id; 0 at the first."""
    if timer_id not in _g_timers:
        _g_timers[timer_id] = Timer()
        return 0
    return _g_timers[timer_id].since_last_check()
