"""Sends records to an experiment tracker from a separate thread (see :mod:`etude.events.trackers.outbox`)."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.config.dump import flat
from etude.config.files import read_json, replace_text
from etude.events.media import as_array, as_picture
from etude.events.record import TIMING_PREFIXES, Record
from etude.events.system import System
from etude.events.trackers.outbox import Outbox
from etude.events.trackers.service import Service
from etude.fast_dataclass import field, record

IDS = "trackers.json"
_ids_lock = threading.Lock()


@record
class Job:
    """What a tracker may know about a run: read from its folder, which holds no secrets."""

    folder: Path
    name: str
    plan: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""
    #: The tracker's own name of this run, if it was started before.
    known_as: str = ""


@dataclass(eq=False)
class Tracker(Service):
    """A writer that passes everything to a thread. A tracker's file defines how to :meth:`open` it and what to call.

    ``checkpoint=True`` sends the best checkpoint at the end. ``system`` adds CPU, memory and GPU use.
    """

    folder: Path
    checkpoint: bool = False
    system: bool = True

    #: The name in ``log.to``.
    name = ""

    def __post_init__(self) -> None:
        self.require(f"writing to {self.name}")
        self._system = System() if self.system else None
        self._outbox = Outbox(self.name, after=self.flush, idle=self._idle)
        self._step = 0
        self._began = False
        self._job = Job(self.folder, "")

    def open(self, job: Job) -> str:
        """Begin the tracker's run, or continue ``job.known_as``; return the name to continue it by."""
        raise NotImplementedError

    # The training's side: nothing here waits.

    def write(self, record: Record) -> None:
        if not self._began:
            self._began = True
            self._outbox.put(self._begin)
        self._outbox.put(self._send, record)

    def leave(self, say: Callable[[str], object] | None = None) -> None:
        """Send what is left without waiting, so that several trackers end in parallel."""
        if self.checkpoint and self._began:
            self._outbox.send(self._send_best, at_once=self.sends_at_once)
        self._outbox.leave(self.finish, say)

    def close(self) -> None:
        """Wait a little for what is left, then say what was lost."""
        if not self._outbox.is_left:
            self.leave()
        self._outbox.close()

    # The thread's side.

    def _begin(self) -> None:
        self._job = read_job(self.folder, self.name)
        known = self.open(self._job)
        if known and known != self._job.known_as:
            path = self.folder / IDS
            with _ids_lock, suppress(OSError):
                replace_text(path, json.dumps(read_json(path) | {self.name: known}) + "\n")

    def _send_best(self) -> None:
        best = best_checkpoint(self.folder, self._job.plan)
        if best is not None:
            self.artifact("checkpoint", best)

    def _idle(self) -> None:
        if self._system is not None:
            self.scalars(self._system.read(), self._step)

    def _send(self, record: Record) -> None:
        self._step = record.step
        values = {
            name if name.startswith(TIMING_PREFIXES) else f"{record.split}/{name}": value
            for name, value in record.values.items()
        }
        if self._system is not None and self._system.is_due():
            values |= self._system.read()
        if values:
            self.scalars(values, record.step)
        for kind, name, value in record.media:
            if kind == "image":
                self.image(name, as_picture(value), record.step)
            elif kind == "histogram":
                self.histogram(name, as_array(value), record.step)
            elif kind in ("text", "table"):
                self.text(name, str(value), record.step)
            elif kind == "artifact":
                self.artifact(name, Path(value))


def read_job(folder: Path, tracker: str) -> Job:
    """Return the job of a run's folder, for a tracker."""
    environment = run_files.environment(folder)
    git = environment.get("git")
    try:
        plan = flat((folder / "plan.yaml").read_text(encoding="utf-8"))
    except OSError:
        plan = {}
    known = read_json(folder / IDS).get(tracker, "")
    commit = git.get("commit", "") if isinstance(git, dict) else ""
    here = folder.absolute()
    return Job(folder, f"{here.parent.name}-{here.name}", plan, commit, known if isinstance(known, str) else "")


def best_checkpoint(folder: Path, plan: Mapping[str, Any]) -> Path | None:
    """Return the saved checkpoint with the best ``checkpoint.best``, or the newest."""
    from etude.metrics.direction import lower_is_better

    metric = str(plan.get("checkpoint.best", ""))
    found = sorted(path for path in (folder / "checkpoints").glob("step-*") if (path / "manifest.json").is_file())
    scored = []
    for path in found:
        value = (read_json(path / "manifest.json").get("metrics") or {}).get(metric)
        if isinstance(value, int | float) and math.isfinite(value):
            scored.append((-value if lower_is_better(metric) else value, path))
    return max(scored)[1] if scored else found[-1] if found else None
