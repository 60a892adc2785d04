"""``Timer``, ``ProgressBar``, and ``track_progress`` for loops and process pools."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import Pool
from shutil import get_terminal_size
from typing import Any, TextIO


class ProgressBar:
    """Shows ``[>>>   ] 3/6, 1.5 task/s, elapsed: 2s, ETA: 2s``, or a count if the number of tasks is unknown."""

    def __init__(self, task_num: int = 0, bar_width: int = 50, start: bool = True, file: TextIO | None = None) -> None:
        self.task_num, self.bar_width, self.completed, self.file = task_num, bar_width, 0, file or sys.stdout
        if start:
            self.start()

    @property
    def terminal_width(self) -> int:
        return get_terminal_size()[0]

    def start(self) -> None:
        if self.task_num > 0:
            self.file.write(f"[{' ' * self.bar_width}] 0/{self.task_num}, elapsed: 0s, ETA:")
        else:
            self.file.write("completed: 0, elapsed: 0s")
        self.file.flush()
        self.timer = Timer()

    def update(self, num_tasks: int = 1) -> None:
        if num_tasks <= 0:
            raise AssertionError("num_tasks must be more than zero")
        self.completed += num_tasks
        elapsed = self.timer.since_start()
        speed = self.completed / elapsed if elapsed > 0 else float("inf")
        if self.task_num > 0:
            self.file.write(self._bar(elapsed, speed))
        else:
            self.file.write(f"completed: {self.completed}, elapsed: {int(elapsed + 0.5)}s, {speed:.1f} tasks/s")
        self.file.flush()

    def _bar(self, elapsed: float, speed: float) -> str:
        share = self.completed / float(self.task_num)
        eta = int(elapsed * (1 - share) / share + 0.5)
        text = (
            f"\r[{{}}] {self.completed}/{self.task_num}, {speed:.1f} task/s, "
            f"elapsed: {int(elapsed + 0.5)}s, ETA: {eta:5}s"
        )
        width = min(self.bar_width, self.terminal_width - len(text) + 2, int(self.terminal_width * 0.6))
        width = max(2, width)
        done = int(width * share)
        return text.format(">" * done + " " * (width - done))


def _tasks_and_count(tasks: Any) -> tuple[Iterable[Any], int]:
    if isinstance(tasks, tuple) and len(tasks) == 2 and isinstance(tasks[0], Iterable) and isinstance(tasks[1], int):
        return tasks[0], tasks[1]
    if isinstance(tasks, Sequence):
        return tasks, len(tasks)
    raise TypeError('"tasks" must be an iterable object or a (iterator, int) tuple')


def track_progress(
    func: Callable[..., Any], tasks: Any, bar_width: int = 50, file: TextIO = sys.stdout, **kwargs: Any
) -> list[Any]:
    """Return ``[func(task, **kwargs) for task in tasks]`` with a bar. ``tasks`` is a sequence or (iterator, length)."""
    return [func(task, **kwargs) for task in track_iter_progress(tasks, bar_width, file)]


def track_iter_progress(tasks: Any, bar_width: int = 50, file: TextIO = sys.stdout) -> Iterator[Any]:
    """Yield the tasks one by one, and update the bar after each."""
    items, number = _tasks_and_count(tasks)
    bar = ProgressBar(number, bar_width, file=file)
    for task in items:
        yield task
        bar.update()
    file.write("\n")


def init_pool(
    process_num: int, initializer: Callable[..., Any] | None = None, initargs: tuple[Any, ...] | None = None
) -> Any:
    if initializer is None:
        return Pool(process_num)
    if initargs is not None and not isinstance(initargs, tuple):
        raise TypeError('"initargs" must be a tuple')
    return Pool(process_num, initializer, initargs or ())


def track_parallel_progress(
    func: Callable[..., Any],
    tasks: Any,
    nproc: int,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] | None = None,
    bar_width: int = 50,
    chunksize: int = 1,
    skip_first: bool = False,
    keep_order: bool = True,
    file: TextIO = sys.stdout,
) -> list[Any]:
    """Call ``func`` on all tasks in ``nproc`` processes. ``skip_first`` excludes the first chunk from the speed."""
    items, number = _tasks_and_count(tasks)
    bar = ProgressBar(number - (nproc * chunksize if skip_first else 0), bar_width, start=not skip_first, file=file)
    results: list[Any] = []
    with init_pool(nproc, initializer, initargs) as pool:
        walk = pool.imap if keep_order else pool.imap_unordered
        for result in walk(func, items, chunksize):
            results.append(result)
            if skip_first and len(results) < nproc * chunksize:
                continue
            if skip_first and len(results) == nproc * chunksize:
                bar.start()
                continue
            bar.update()
    file.write("\n")
    return results


class TimerError(Exception):
    """Raised when a timer is read that is not running."""


class Timer:
    """A timer. ``with Timer(): ...`` prints the seconds; :meth:`since_start` and others return them."""

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
    """Return the seconds since the last call with this id; 0 at the first."""
    if timer_id not in _g_timers:
        _g_timers[timer_id] = Timer()
        return 0
    return _g_timers[timer_id].since_last_check()
