"""Reports from every rank to the launcher, in a thread: what the rank does, and how long it has made no progress.

A step of training does nothing for it. Only when nothing moves does it look at the stack of the main thread, which says
whether the rank loads data, is in a hook, computes, or only waits for the others. So the launcher does not blame a rank
that waits.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from etude.dist.jobs import collectives, reports

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
#: Only where it is the innermost place: around other ones it is a forward pass, or work that rank 0 does for all.
_INNERMOST = ("/torch/nn/parallel/distributed.py", "/etude/dist/")
#: Where a rank begins.
_WORKER = "/etude/dist/jobs/launch.py"
#: Whether the start of this rank needs no more watching.
started = threading.Event()
_CALLS_HOOKS = "/etude/core/hook.py"
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


class Frame(NamedTuple):
    """A line of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return f'File "{self.file}", line {self.line}, in {self.function}' + (f"\n  {text}" if text else "")


class Heartbeat:
    """Sends heartbeats. ``mark`` changes with every batch; ``steps`` counts finished ones; ``hook`` names the active
    hook."""

    def __init__(
        self,
        *,
        mark: Callable[[], Any],
        steps: Callable[[], int],
        hook: Callable[[], str],
        interval: float = 0.5,
    ) -> None:
        self.mark, self.steps, self.hook, self.interval = mark, steps, hook, interval
        self._main = threading.main_thread().ident or 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="etude-heartbeat", daemon=True)

    def start(self) -> None:
        started.set()
        reports.steps = self.steps
        reports.beat(step=self.steps(), doing="trains")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=5)
        reports.end_beats()

    def _watch(self) -> None:
        seen, since = self.mark(), time.monotonic()
        while not self._over.wait(self.interval):
            now = self.mark()
            if now != seen:
                seen, since = now, time.monotonic()
            still = time.monotonic() - since
            seen_now = self._look() if still > 2 * self.interval else {"doing": "trains"}
            reports.beat(step=self.steps(), still=still, **seen_now)

    def _look(self) -> dict[str, Any]:
        stack = stack_of(self._main)
        doing, waiting = classify(stack, self.hook())
        return {"doing": doing, "waiting": waiting, "stack": _shown(stack), "calls": collectives.of_this_rank()}


def watch_start(interval: float = 1.0) -> None:
    """Report this rank's position to the launcher until its heartbeat starts, so that a rank that never trains is
    named."""
    main = threading.main_thread().ident or 0

    def watch() -> None:
        while not started.wait(interval):
            stack = stack_of(main)
            reports.beat(doing=reports.STARTING, waiting=classify(stack, "")[1], stack=_shown(stack))

    threading.Thread(target=watch, name="etude-start", daemon=True).start()


def _shown(stack: Sequence[Frame]) -> str:
    return "".join(f"  {place}\n" for place in reversed(stack[:_SHOWN]))


def stack_of(thread: int) -> list[Frame]:
    """Return the stack of another thread, the innermost place first; at most 100, as many as faulthandler shows.

    faulthandler only reads the interpreter's memory. Frame objects of a thread that runs are not safe to follow: Python
    3.11 was seen to return objects of other kinds as ``f_back``, and to crash.
    """
    # faulthandler writes to a descriptor, not to an object of Python.
    with tempfile.TemporaryFile("w+b") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return _read_stack(file.read().decode(errors="replace"), thread)


def keep_crash(place: Path) -> None:
    """Let a crash of this process (an abort in C++) leave its stacks in a file for :func:`stack_of_crash`."""
    with suppress(OSError):
        file = open(place, "w")  # noqa: SIM115  # stays open, for the moment in which nothing can be opened
        file.write(f"{threading.main_thread().ident}\n")
        file.flush()
        faulthandler.enable(file, all_threads=True)


def stack_of_crash(place: Path) -> str:
    """Return the stack of the main thread of a process that has crashed; empty if it has left none."""
    with suppress(OSError, ValueError):
        thread, _, text = place.read_text(encoding="utf-8", errors="replace").partition("\n")
        return _shown(_read_stack(text, int(thread)))
    return ""


def _read_stack(text: str, thread: int) -> list[Frame]:
    # It writes `Thread` or `Current thread`.
    lines = text.partition(f"hread 0x{thread:016x} ")[2].splitlines()[1:]
    found = []
    for line in lines:
        match = _FRAME.fullmatch(line)
        if match is None:
            break
        found.append(Frame(match["file"], int(match["line"]), match["function"]))
    return found


def classify(stack: Sequence[Frame], hook: str) -> tuple[str, bool]:
    """Return what a thread with this stack does, and whether it waits for other ranks; ``hook`` is at work in it."""
    for depth, place in enumerate(stack):
        name = place.file.replace(os.sep, "/")
        if hook and name.endswith(_CALLS_HOOKS):
            return f"is in {hook}", False
        if name.endswith(_WORKER):
            break  # the places around it are of the process, not of the command
        for part, doing, waits in _DOING:
            if part in name and not (part in _INNERMOST and depth):
                return doing, waits
    return "does something else", False
