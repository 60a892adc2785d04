"""Accounts a run's wall time to its start, data, forward and backward, update, hooks by name, evaluation, checkpoint,
waiting for other processes, and its end.

A thread looks at the training thread's stack now and then and gives the time since its last look to what it sees. A
step of training pays nothing for it: no clock is read and no call is wrapped.
"""

from __future__ import annotations

import operator
import random
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import accumulate, chain, repeat
from types import FrameType
from typing import Any

from etude.core.hook import PointCalls
from etude.session.exchange import waits_for_peers

#: Seconds between two looks: often at the beginning, so that short runs are reported well too. A look takes 0.1 ms.
_FIRST, _LATER, _SHORT = 0.05, 0.1, 2.0
_IMPATIENT = 5e-5
_CHANCE = random.Random()  # its own: the global one belongs to the training
DATA, FORWARD, UPDATE, EVALUATION, CHECKPOINT, WAITING, START, END, OTHER = (
    "data", "forward/backward", "update", "evaluation", "checkpoint", "waiting for other processes", "start", "end",
    "other",
)  # fmt: skip
_HOOK = "hook "
#: Its frames do not decide: it calls the store, whose time belongs to checkpoints.
_STOPS = f"{_HOOK}Stops"
#: The share of the training time from which on a run that waits for data gets advice.
SLOW_DATA = 0.2
_EVALUATES = {"evaluate", "run_val", "val", "_do_test", "test_net", "inference_on_dataset"}
_STEPS = {"train_step", "run_iter", "run_step"}
_OPTIMIZES = {"apply", "_apply", "optim_step", "update_params", "clip_grads"}
_COLLECTIVES = "distributed_c10d.py"


class Sampler:
    """Start it in the thread that trains; ``seconds`` has the account, ``stop`` ends it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._thread_id, self._native_id = threading.get_ident(), threading.get_native_id()
        self._running = threading.Lock()  # waiting for a lock is one call into C; for an Event it is a page of Python
        self._thread = threading.Thread(target=self._look, name="etude-time", daemon=True)

    def start(self) -> None:
        self._thread_id, self._native_id = threading.get_ident(), threading.get_native_id()
        self._running.acquire()
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._running.release()
            self._thread.join(timeout=5)

    def _look(self) -> None:
        began = before = time.perf_counter()
        while not self._running.acquire(timeout=_FIRST if before - began < _SHORT else _LATER):
            frames = self._frames()
            now = time.perf_counter()
            what = classify(frames) if frames else OTHER
            if what == FORWARD and waits_for_peers(frames, self._native_id):
                what = WAITING
            self.seconds[what] = self.seconds.get(what, 0.0) + now - before
            before = now

    def _frames(self) -> list[FrameType]:
        """Return the training thread's frames, the innermost first, at a moment of the clock's choice.

        A thread that wakes up gets the interpreter when the other one lets go of it, which is mostly in a system call:
        a tiny write after every step would look like a fifth of the time. So wake up once more, impatiently.
        """
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_IMPATIENT)
        try:
            time.sleep(_IMPATIENT * 4 * (1 + _CHANCE.random()))
            return frames_of(self._thread_id)
        finally:
            sys.setswitchinterval(usual)


def frames_of(thread: int) -> list[FrameType]:
    """Return the frames of a running thread, the innermost first.

    The whole walk is one call into C. Between two steps of a walk in Python the other thread may run, leave a generator
    and free the frame that ``f_back`` then follows: Python 3.11 crashes.
    """
    found: list[FrameType] = []
    first = map(operator.getitem, map(operator.call, (sys._current_frames,)), (thread,))
    with suppress(AttributeError, KeyError):  # the outermost frame is followed by None; a thread may have ended
        found.extend(accumulate(chain(first, repeat("f_back")), getattr))  # type: ignore[arg-type]
    return [frame for frame in found if frame is not None]


def classify(frames: list[FrameType]) -> str:
    """Return what a thread does that has these frames, the innermost first; the outermost that says anything decides,
    but waiting for other processes is that wherever it happens."""
    if any(one.f_code.co_filename.endswith(_COLLECTIVES) for one in frames[:4]):
        return WAITING
    found = OTHER
    for one in reversed(frames):
        code = one.f_code
        if code is _POINT_CALL or code is _EACH_CALL:
            seen = _hook(one.f_locals)
        else:
            seen = _seen(code.co_name, one.f_globals.get("__name__", ""))
        if seen is not None:
            found = seen
        if found not in (OTHER, DATA, FORWARD, _STOPS):
            return found
    return found


_POINT_CALL, _EACH_CALL = PointCalls.__call__.__code__, PointCalls.each.__code__


@cache  # by strings, which know their hash; that of a code object is computed anew each time
def _seen(name: str, module: str) -> str | None:
    """Return what a frame of the function ``name`` in ``module`` tells, or None."""
    if module.startswith("torch.optim") and name in ("step", "zero_grad"):
        return UPDATE
    if module == "etude.core.update" and name in _OPTIMIZES:
        return UPDATE
    if module.startswith(("torch.utils.data", "etude.data")):
        return DATA
    if not module.startswith("etude."):
        return None
    if module.startswith("etude.checkpoint"):
        return CHECKPOINT
    if module in ("etude.core.update", "etude.core.forward") or name in _STEPS:
        return FORWARD
    if name in _EVALUATES:
        return EVALUATION
    return DATA if name in ("train_epoch", "batches") else None


def _hook(names: Mapping[str, Any]) -> str | None:
    owner = names["self"]._owner_of(names.get("call"))
    if owner is None:
        return None
    if owner.name in ("Evaluate", "EvalHook", "DistEvalHook"):
        return EVALUATION
    if owner.name in ("Checkpoint", "CheckpointHook", "Saver", "PeriodicCheckpointer"):
        return CHECKPOINT
    return f"{_HOOK}{owner.name}"


def table(seconds: Mapping[str, float]) -> list[str]:
    """Return the account as lines, the largest share first; below 0.5 % hooks are added up."""
    whole = sum(seconds.values())
    if whole <= 0:
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
        return f"{said}: try data.train.workers=2; the batches are made by the training process now"
    more = f": try data.train.workers={2 * workers} (now {workers})" if workers else ": use more workers"
    larger = f", or a batch size larger than {batch_size}" if batch_size else ""
    return f"{said}{more}{larger}"
