"""Accounts a run's wall time: start, data, forward/backward, update, each hook, evaluation, checkpoint, waiting for
other processes, and end.

A thread looks now and then at what the run says it does (``run.stage`` and ``run.acting``) and gives the time since its
last look to that. A step of training reads no clock for it. The thread does not look at the stack of the thread that
trains: Python 3.11 crashes when another thread follows frames that are being left.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from etude.core.run import Run
from etude.dist import group
from etude.dist.world import stat_of

#: Seconds between two looks, at least and at most, and as a share of the time since the first: short runs are reported
#: well too, and a long one is not disturbed.
_FIRST, _LATER, _SHARE = 0.002, 0.1, 0.05
#: Seconds of a run from which on its account says something.
_LEAST = 0.5
_IMPATIENT = 5e-5
_CHANCE = random.Random()  # its own: the global one belongs to the training
DATA, FORWARD, UPDATE, EVALUATION, CHECKPOINT, WAITING, START, END, OTHER = (
    "data", "forward/backward", "update", "evaluation", "checkpoint", "waiting for other processes", "start", "end",
    "other",
)  # fmt: skip
_STAGES = {"data": DATA, "step": FORWARD}
#: What hooks do that are no user's: the names that Étude's and the dialects' have.
HOOKS = {
    **dict.fromkeys(("Evaluate", "EvalHook", "DistEvalHook"), EVALUATION),
    # Stops saves what is the best so far, and looks after the saves under way.
    **dict.fromkeys(("Checkpoint", "CheckpointHook", "Saver", "PeriodicCheckpointer", "Stops"), CHECKPOINT),
    **dict.fromkeys(("OptimizerHook", "DistOptimizerHook"), UPDATE),
    # The ledger, and the clock of slow steps: a sampler meets them more often than their time would have it.
    **dict.fromkeys(("Noting", "_end_step"), OTHER),
}
#: While it does these, a thread that sleeps waits for the gradients or the decisions of other ranks.
_EXCHANGES = (FORWARD, UPDATE, CHECKPOINT)
#: The share of the training time from which on a run that waits for data gets advice.
SLOW_DATA = 0.2


class Looks(Protocol):
    """Looks at a run whenever it is sampled."""

    def patience(self, usual: float) -> float: ...
    def look(self, what: str, before: float, now: float) -> None: ...


class Sampler:
    """Samples what the run does. Start it in the training thread; ``seconds`` holds the result, ``stop`` ends it."""

    def __init__(self, run: Run, slow: Looks | None = None) -> None:
        """``slow``: what looks at slow steps at the same time."""
        self.seconds: dict[str, float] = {}
        self._slow = slow
        self._run, self._native_id = run, threading.get_native_id()
        self._running = threading.Lock()  # waiting for a lock is one call into C; for an Event it is a page of Python
        self._thread = threading.Thread(target=self._look, name="etude-time", daemon=True)

    def start(self) -> None:
        self._native_id = threading.get_native_id()
        self._running.acquire()
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._running.release()
            self._thread.join(timeout=5)

    def _look(self) -> None:
        began = before = time.perf_counter()
        slow = self._slow
        while True:
            wait = min(max(_SHARE * (before - began), _FIRST), _LATER)
            if self._running.acquire(timeout=wait if slow is None else slow.patience(wait)):
                return
            _wake_at_any_moment()
            what, now = doing(self._run), time.perf_counter()
            exchanges = what in _EXCHANGES and _has_peers_on_cpu()
            if group.is_waiting or (exchanges and stat_of(f"self/task/{self._native_id}")[:1] == ["S"]):
                what = WAITING
            self.seconds[what] = self.seconds.get(what, 0.0) + now - before
            if slow is not None:
                slow.look(what, before, now)
            before = now


def mark_updates(run: Run) -> ExitStack:
    """Count every ``optimizer.step()`` as the update of a run whose own code calls it, until the stack is closed."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def begin(*_: Any) -> None:
        run.acting = run.acting or UPDATE

    def end(*_: Any) -> None:
        run.acting = None if run.acting == UPDATE else run.acting

    marks = ExitStack()
    marks.callback(register_optimizer_step_pre_hook(begin).remove)
    marks.callback(register_optimizer_step_post_hook(end).remove)
    return marks


def doing(run: Run) -> str:
    """Return what a run does now, as the account calls it."""
    if run.acting is None:
        return _STAGES.get(run.stage, OTHER)
    if isinstance(run.acting, str):
        return run.acting
    found = run.hooks.acting(run.acting)
    return OTHER if found is None else HOOKS.get(found[0].name, f"hook {found[0].name}")


def _wake_at_any_moment() -> None:
    """Sleep briefly and wake up at a random moment.

    A thread that wakes up gets the interpreter when the other one lets go of it, which is mostly in a system call:
    a tiny write after every step would look like a fifth of the time. So wake up once more, impatiently.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_IMPATIENT)
    try:
        time.sleep(_IMPATIENT * 4 * (1 + _CHANCE.random()))
    finally:
        sys.setswitchinterval(usual)


def _has_peers_on_cpu() -> bool:
    """Return whether other ranks train on CPUs. On a GPU a thread sleeps while its device computes, so that waiting for
    others cannot be seen."""
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.is_initialized() or not torch.distributed.is_available():
        return False
    return bool(torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1)


def table(seconds: Mapping[str, float]) -> list[str]:
    """Return the account as lines, the largest share first; below 0.5 % hooks are added up. A run of a moment has
    none: in tenths of a second there is little to say about it."""
    whole = sum(seconds.values())
    if whole < _LEAST:
        return []
    small = {name: spent for name, spent in seconds.items() if spent < 0.005 * whole}
    shown = {name: spent for name, spent in seconds.items() if name not in small}
    if small:
        shown[OTHER] = shown.get(OTHER, 0.0) + sum(small.values())
    rows = sorted(shown.items(), key=lambda row: (row[0] == OTHER, -row[1]))
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}} {spent:>8.1f} s {spent / whole:>5.0%}" for name, spent in rows]


def advice(seconds: Mapping[str, float], *, workers: int | None, batch_size: int | None) -> str:
    """Return what to try when a run waits for data for more than a fifth of its time; else nothing."""
    whole = sum(spent for name, spent in seconds.items() if name not in (START, END))
    data = seconds.get(DATA, 0.0)
    if whole < 1.0 or data <= SLOW_DATA * whole:
        return ""
    every = sum(seconds.values())  # the share that the table has
    said = f"training waited for data {data / every:.0%} of the time ({data:.1f} s of {every:.1f} s)"
    if workers == 0:
        return f"{said}: try workers=2 for the training data; the training process makes the batches itself now"
    more = f": try workers={2 * workers} for the training data (now {workers})" if workers else ": use more workers"
    larger = f", or a batch size larger than {batch_size}" if batch_size else ""
    return f"{said}{more}{larger}"
