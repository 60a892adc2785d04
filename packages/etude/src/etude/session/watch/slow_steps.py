"""Explains slow steps: a step that took much longer than the median gets a cause, with its evidence.

A step reads the clock once and compares. Everything else is read when a step was slow, and compared with what the
thread that samples the run has read before that step began: processor time, waiting for a processor, page faults,
garbage collection, compiled graphs. What the run did meanwhile is what the same thread saw; it looks more often while a
step is overdue.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from etude import torch_private
from etude.core.hook import Call, FunctionHook, Hook
from etude.core.run import Run
from etude.dist import group
from etude.dist.jobs.heartbeat import stack_of
from etude.dist.world import stat_of
from etude.errors.own_code import is_library
from etude.hooks.timer import Timer
from etude.inspection.points import EPOCH_POINTS, STEP_POINTS
from etude.session.watch import wall_time
from etude.units import counted

#: A step is slow if it takes so many times the median, and so many seconds more.
FACTOR, LEAST = 1.5, 0.005
#: Steps that are done before one is called slow, and the newest ones that the median is of.
_FIRST, _WINDOW = 20, 200
#: Seconds between two looks at a step that is overdue; steps shorter than the second are looked at by chance.
_OFTEN, _SHORT = 0.002, 0.02
#: The share of the time lost that a cause has to explain.
_ENOUGH = 0.5
#: Megabytes that a step has to read or write more than others before a disk is to blame.
_MEGABYTES = 8
#: Slow steps that are kept one by one, the worst; of all others the sums by cause.
_KEPT = 20
#: Seconds that a cause has to take before the log has a line about it; then whenever they have doubled.
_WORTH_A_LINE = 1.0
COLLECTION, SAVE, FAULTS, CPU, RANK, DISK, COMPILING, LOGGING, STOPPED, LARGER, EVALUATING, UNKNOWN = (
    "garbage collection", "a save", "page faults", "CPU taken by others", "another rank", "disk", "recompilation",
    "logging", "the process was stopped", "a larger batch", "evaluation", "unknown",
)  # fmt: skip
_KINDS = {wall_time.CHECKPOINT: SAVE, wall_time.EVALUATION: EVALUATING}
_LOGGERS = dict.fromkeys(("Log", "LoggerHook", "TextLoggerHook", "PeriodicWriter"), LOGGING)


class Reading(NamedTuple):
    """What counters of the process said at a moment."""

    when: float
    cpu: float
    system: float
    #: Seconds in which the training thread could have run, and another one did.
    waited: float
    faults: int
    #: Of 512 bytes, read and written.
    blocks: int
    collected: float
    graphs: int

    def since(self, base: Reading) -> Reading:
        return Reading._make(now - before for now, before in zip(self, base, strict=True))


class Overdue(NamedTuple):
    """A slow step, as the training thread left it."""

    step: int
    began: float
    took: float
    in_data: float
    evaluated: float
    reading: Reading
    numbers: int
    #: The slowest sample of its batch and the seconds, where a worker has made it.
    slowest: tuple[Any, float] | None


class Seen:
    """What the sampling thread has seen of one step."""

    def __init__(self) -> None:
        self.doing: dict[str, float] = {}
        self.on_disk = self.late = self.gap = 0.0
        self.sample: Any = None
        self.place = ""


class SlowSteps:
    """Finds slow steps and their causes. ``look`` and ``patience`` are for the thread that samples the run."""

    def __init__(self, run: Run, *, say: Callable[[str], Any]) -> None:
        self.run, self.say = run, say
        self.median, self.limit = 0.0, float("inf")
        #: Seconds lost and how many steps, by cause; the worst steps.
        self.causes: dict[str, list[float]] = {}
        self.worst: list[dict[str, Any]] = []
        self._said: dict[str, float] = {}
        self._took: list[float] = []
        self._window: deque[float] = deque(maxlen=_WINDOW)
        self._done, self._ended, self._evaluated = 0, time.perf_counter(), 0.0
        self._timer: Timer | None = None
        self._watched, self._native = threading.get_ident(), threading.get_native_id()
        self._jobs: deque[Overdue] = deque()
        self._late: list[tuple[float, dict[str, Any]]] = []
        self._sent: deque[dict[str, Any]] = deque(maxlen=8)
        self._bases: deque[Reading] = deque(maxlen=4)
        self._numbers: deque[int] = deque(maxlen=20)
        self._seen: dict[float, Seen] = {}
        self._acts: deque[tuple[float, float, str]] = deque(maxlen=64)
        self._collected, self._collecting, self._place_at = 0.0, 0.0, 0.0

    # -- in the thread that trains ---------------------------------------------------------------------------------

    def start(self) -> None:
        run = self.run
        self._watched, self._native = threading.get_ident(), threading.get_native_id()
        self._timer = next((hook for hook in run.hooks if isinstance(hook, Timer)), None)
        if run.hooks.wrap is None:
            run.hooks.wrap = self._timed
        run.hooks.add(FunctionHook(self._end_step, "after_step", priority=1 << 30))
        gc.callbacks.append(self._note_collection)
        self._first = self._read()
        self._ended = time.perf_counter()

    def stop(self) -> None:
        """Explain what is left, when nobody samples any more."""
        with suppress(ValueError):
            gc.callbacks.remove(self._note_collection)
        while self._jobs:
            self._explain(self._jobs.popleft())
        while self._late:
            self._conclude(self._from_rank(self._late.pop(0)[1]))

    def _end_step(self, run: Run) -> None:
        before, self._ended = self._ended, time.perf_counter()
        self._took.append(self._ended - before)
        if self._ended - before > self.limit:
            self._note_slow(run, before, self._ended - before)

    def _note_slow(self, run: Run, before: float, took: float) -> None:
        timer = self._timer
        evaluated = timer.totals["evaluation"] if timer is not None else 0.0
        in_data = timer.began - before if timer is not None else 0.0
        during, self._evaluated = evaluated - self._evaluated, evaluated
        slowest = getattr(run.data.get("train"), "slowest", None)
        numbers = _numbers_in(run.batch)
        self._jobs.append(Overdue(run.step + 1, before, took, in_data, during, self._read(), numbers, slowest))

    def _note_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._collected += time.perf_counter() - self._collecting

    def _timed(self, hook: Hook, point: str, call: Call) -> Call:
        """Return ``call`` with a clock around it, if it is not called in every step."""
        if point not in EPOCH_POINTS and (hook.every is None or point not in STEP_POINTS):
            return call

        def timed(run: Run) -> Any:
            began = time.perf_counter()
            try:
                return call(run)
            finally:
                ended = time.perf_counter()
                self._acts.append((began, ended, hook.name))

        return timed

    def _read(self) -> Reading:
        used = resource.getrusage(resource.RUSAGE_SELF)
        waited = 0.0
        with suppress(OSError, ValueError, IndexError), open(f"/proc/self/task/{self._native}/schedstat") as file:
            waited = int(file.read().split()[1]) / 1e9
        return Reading(
            time.perf_counter(), used.ru_utime + used.ru_stime, used.ru_stime, waited, used.ru_minflt + used.ru_majflt,
            used.ru_inblock + used.ru_oublock, self._collected, torch_private.graphs(),
        )  # fmt: skip

    # -- in the thread that samples ----------------------------------------------------------------------------------

    def patience(self, usual: float) -> float:
        """Return the seconds until the next look: soon if a step is overdue or will be."""
        if self.limit == float("inf"):
            return usual
        left = self._ended + self.limit - time.perf_counter()
        if left <= 0:
            return _OFTEN
        return min(usual, max(left, _OFTEN)) if self.median > _SHORT else usual

    def look(self, what: str, before: float, now: float) -> None:
        """Note that the run did ``what`` from ``before`` until ``now``; explain the steps that were slow meanwhile."""
        ended = self._ended
        seen = self._seen.setdefault(ended, Seen())
        passed = now - max(before, ended)
        if passed > 0:
            seen.doing[what] = seen.doing.get(what, 0.0) + passed
            seen.gap = max(seen.gap, passed)
        if now - ended > self.limit:
            self._look_closely(seen, what, passed, now)
        else:
            self._bases.append(self._read())
            self._numbers.append(_numbers_in(self.run.batch))
        self._learn()
        while self._jobs and self._jobs[0].began != ended:
            self._explain(self._jobs.popleft())
        while self._late and self._late[0][0] < now:
            self._conclude(self._from_rank(self._late.pop(0)[1]))
        for old in list(self._seen)[:-4]:
            del self._seen[old]

    def _look_closely(self, seen: Seen, what: str, passed: float, now: float) -> None:
        if stat_of(f"self/task/{self._native}")[:1] == ["D"]:
            seen.on_disk += passed
        seen.late += passed
        if what == wall_time.DATA and seen.sample is None:
            loading = getattr(self.run.data.get("train"), "loading", None)
            seen.sample = loading() if loading is not None else None
        if not seen.place and now - self._place_at > 1.0:
            self._place_at = now
            places = [place for place in stack_of(self._watched) if not is_library(place.file)]
            seen.place = f"{os.path.relpath(places[0].file)}:{places[0].line} in {places[0].function}" if places else ""

    def _learn(self) -> None:
        """Take the times of steps since the last look into the median."""
        if not self._took:
            return
        took, self._took = self._took, []
        self._done += len(took)
        self._window.extend(took)
        if self._done >= _FIRST:
            self.median = statistics.median(self._window)
            self.limit = max(FACTOR * self.median, self.median + LEAST)

    def _explain(self, job: Overdue) -> None:
        over = job.took - job.evaluated - self.median
        if over < max((FACTOR - 1) * self.median, LEAST):
            return  # an evaluation is no part of a step
        cause, why = self._cause(job, over, self._seen.get(job.began, Seen()))
        record = {"step": job.step, "seconds": round(job.took, 4), "over": round(over, 4), "cause": cause, "why": why}
        if cause == RANK:
            self._late.append((time.perf_counter() + 0.5, record))
        else:
            self._conclude(record)

    def _cause(self, job: Overdue, over: float, seen: Seen) -> tuple[str, str]:
        """Return the cause of a slow step, and the evidence for it."""
        base = next((one for one in reversed(self._bases) if one.when <= job.began), self._first)
        spent = job.reading.since(base)
        # What the steps before it have used in the same time is no reason.
        usual = base.since(self._first)
        share = min(1.0, max(0.0, spent.when - over) / usual.when) if usual.when > 0 else 0.0
        enough = _ENOUGH * over
        hook, hooked = self._slowest_hook(job)
        busy = dict(seen.doing)
        what = max(busy, key=lambda name: busy[name], default="")
        if what.startswith("hook ") and hooked < enough:
            hook, hooked = what[5:], busy[what]
        if (waiting := busy.get(wall_time.WAITING, 0.0)) >= enough:
            return RANK, f"{waiting:.3f} s"
        if (kind := _KINDS.get(what)) is not None and busy[what] >= enough:
            return kind, f"{busy[what]:.3f} s{self._at(seen)}"
        if hooked >= enough and _kind_of_hook(hook):
            return _kind_of_hook(hook), f"{hooked:.3f} s in {hook}{self._at(seen)}"
        if spent.graphs > 0:
            return COMPILING, f"torch compiled {counted(int(spent.graphs), 'graph')}"
        if spent.collected - share * usual.collected >= enough:
            return COLLECTION, f"{spent.collected:.3f} s in Python's garbage collector"
        where = self._where(job, seen, what, hook if hooked >= enough else "")
        if seen.gap >= enough and spent.cpu < _ENOUGH * (spent.when - over) + 0.2 * over and not hooked >= enough:
            return STOPPED, f"for {seen.gap:.3f} s no thread of it ran"
        waited = spent.waited - share * usual.waited
        if waited >= enough:
            return CPU, f"the training thread waited {waited:.3f} s for a processor{where}"
        system, faults = spent.system - share * usual.system, spent.faults - share * usual.faults
        moved, away = (spent.blocks - share * usual.blocks) / 2048, over - (spent.cpu - share * usual.cpu)
        waits = seen.late > 0 and seen.on_disk >= _ENOUGH * seen.late
        if waits or (moved >= _MEGABYTES and system + max(0.0, away) >= enough):
            return DISK, f"{moved:.0f} MB read or written, {seen.on_disk:.3f} s waiting{where}{self._at(seen)}"
        if system >= 0.4 * over and faults >= 100:
            return FAULTS, f"{faults:.0f} pages, {system:.3f} s in the kernel{where}{self._at(seen)}"
        if hooked >= enough:
            return f"hook {hook}", f"{hooked:.3f} s{self._at(seen)}"
        if job.in_data >= enough:
            return self._slow_data(job, seen)
        common = statistics.median(self._numbers) if self._numbers else 0
        if common and job.numbers > 1.3 * common:
            return LARGER, f"{job.numbers:,} numbers, {job.numbers / common:.1f} times as many as usual"
        return UNKNOWN, f"{spent.cpu - share * usual.cpu:.3f} s of processor time more{where}{self._at(seen)}"

    def _slowest_hook(self, job: Overdue) -> tuple[str, float]:
        """Return the hook that took most of a step, of those that do not act in every step; evaluation is left out."""
        acts: dict[str, float] = {}
        for began, ended, name in list(self._acts):
            if began >= job.began and ended <= job.reading.when:
                first = -job.evaluated if _kind_of_hook(name) == EVALUATING else 0.0
                acts[name] = acts.get(name, first) + ended - began
        slowest = max(acts, key=lambda name: acts[name], default="")
        return (slowest, acts[slowest]) if slowest else ("", 0.0)

    def _where(self, job: Overdue, seen: Seen, what: str, hook: str) -> str:
        if hook:
            return f", in hook {hook}"
        if job.in_data >= _ENOUGH * job.took:
            return f", while sample {seen.sample} was loaded" if seen.sample is not None else ", in the data"
        return f", in {what}" if what else ""

    @staticmethod
    def _at(seen: Seen) -> str:
        return f", at {seen.place}" if seen.place else ""

    def _slow_data(self, job: Overdue, seen: Seen) -> tuple[str, str]:
        sample, seconds = job.slowest or (seen.sample, job.in_data)
        if sample is not None:
            return f"sample {sample}", f"{seconds:.3f} s{self._at(seen)}"
        return "data", f"{job.in_data:.3f} s until the batch was there{self._at(seen)}"

    # -- another rank ------------------------------------------------------------------------------------------------

    def _from_rank(self, record: dict[str, Any]) -> dict[str, Any]:
        """Add what the rank says that this one has waited for."""
        with suppress(Exception):  # a store that is gone takes a word away, not the run
            mail = group.mail("slow")
            for rank in range(self.run.world.size):
                if rank != self.run.world.rank and mail.check([str(rank)]):
                    theirs = [one for one in json.loads(mail.get(str(rank))) if abs(one["step"] - record["step"]) <= 1]
                    if theirs:
                        worst = max(theirs, key=lambda one: one["over"])
                        record["why"] = f"{record['why']}: rank {rank}: {worst['cause']}, {worst['why']}"
        return record

    def _conclude(self, record: dict[str, Any]) -> None:
        cause, over = record["cause"], record["over"]
        if self.run.world.is_many and cause != RANK:
            self._sent.append(record)
            with suppress(Exception):
                group.mail("slow").set(str(self.run.world.rank), json.dumps([*self._sent]))
        kind = kind_of(cause)
        total = self.causes.setdefault(kind, [0, 0.0])
        total[0] += 1
        total[1] += over
        self.worst = sorted([*self.worst, record], key=lambda one: -one["over"])[:_KEPT]
        if total[1] >= max(_WORTH_A_LINE, 2 * self._said.get(kind, 0.0)):
            self._said[kind] = total[1]
            self.say(f"slow: {line(record, self.median)}")

    def record(self) -> dict[str, Any]:
        """Return what was found so far, for ``status.json``; empty if no step was slow."""
        if not self.causes:
            return {}
        sums = {kind: [int(count), round(seconds, 3)] for kind, (count, seconds) in list(self.causes.items())}
        return {"median": round(self.median, 6), "steps": self._done, "causes": sums, "worst": list(self.worst)}


def _kind_of_hook(name: str) -> str:
    """Return the cause that a hook of Étude or of a dialect stands for; empty for others."""
    return _LOGGERS.get(name) or _KINDS.get(wall_time.HOOKS.get(name, ""), "")


def kind_of(cause: str) -> str:
    """Return a cause without what is of one step alone: all slow samples are one kind."""
    return "slow samples" if cause.startswith("sample ") else cause


def line(record: Mapping[str, Any], median: float) -> str:
    """Return a slow step as a line."""
    took = f"step {record['step']} took {record['seconds']:.3f} s (median {median:.3f} s)"
    return f"{took}: {record['cause']}: {record['why']}"


def _numbers_in(batch: Any) -> int:
    """Return how many numbers a batch has, as far as it shows them."""
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else (batch,)
    return sum(part.numel() for part in parts if hasattr(part, "numel"))
