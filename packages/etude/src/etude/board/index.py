"""Keeps an index of the runs below a folder in memory: only folders whose files changed are read again."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.errors import UserError
from etude.events.media import media_files
from etude.report.axes import axes_of
from etude.report.compare import KINDS, compare, plan_of
from etude.report.downsample import thin
from etude.report.notes import FILE as NOTES
from etude.report.query import matching
from etude.report.records import Curve, Records, record_files
from etude.report.runs import RunInfo, changed_keys, find_runs, name_of, summarise, unusual_keys
from etude.report.status import FAILED, FINISHED, RUNNING, UNKNOWN
from etude.report.text import best_checkpoint, checkpoints, log_tail, slow_lines, spent_time

#: Larger record files are sampled, so that they open in a second.
_WHOLE = 8 << 20
#: Runs whose curves stay in memory.
_MOST_OPEN = 32
#: A medium of more bytes is not shown.
_LARGEST = 16 << 20
#: Seconds that one refresh reads runs for: a list of thousands is there at once, and fills in.
_BUDGET = 0.5
#: Seconds between two searches for new run folders.
_SEARCH = 2.0


class Index:
    """The runs below ``root``. Safe to use from several threads; ``version`` grows with every change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = 0
        self._lock = threading.RLock()
        self._folders: dict[str, Path] = {}
        self._infos: dict[str, tuple[tuple[Any, ...], RunInfo]] = {}
        self._lines: dict[str, dict[str, Any]] = {}
        #: The version at which a run's line changed last, or at which the run went away.
        self._changed: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._records: OrderedDict[str, tuple[threading.Lock, Records]] = OrderedDict()
        self._searched = -_SEARCH
        self._read_at: dict[str, float] = {}
        #: Whether some runs could not be read in the time of the last :meth:`refresh`.
        self.is_stale = False

    def look_ahead(self) -> None:
        """Read the runs before anybody asks; a folder that cannot be read is reported when somebody does."""
        with suppress(UserError, OSError):
            self.refresh()
            while self.is_stale:
                self.refresh()

    def refresh(self) -> int:
        """Look for new and changed runs; return the version.

        Of many runs that are not known yet, some are read at a time: a first list need not wait for the last of them.
        """
        with self._lock:
            if time.monotonic() - self._searched >= _SEARCH:
                self._folders = {name_of(path, self.root): path for path in find_runs(self.root)}
                self._searched = time.monotonic()
            gone = [name for name in self._infos if name not in self._folders]
            for name in gone:
                del self._infos[name]
            read = self._read(self._waiting())
            if gone or read or self._lines.keys() != self._folders.keys():
                self.version += 1
                self._list([*gone, *read])
            return self.version

    def _waiting(self) -> list[str]:
        """Return the runs to read: first those that are not known yet, the newest first, then those that changed."""
        unknown = []
        changed = []
        for name, path in self._folders.items():
            known = self._infos.get(name)
            if known is None:
                unknown.append(name)
            # A run that is killed writes nothing: whether it is alive is asked each time.
            elif known[1].state == RUNNING or known[0] != _mark(path, known[1].state):
                changed.append(name)
        # Of many that go on, those come first that were read longest ago.
        return unknown[::-1] + sorted(changed, key=lambda name: self._read_at.get(name, 0.0))

    def _read(self, waiting: Sequence[str]) -> list[str]:
        """Read runs until the time is up; return those that are new or have changed."""
        found, until = [], time.monotonic() + _BUDGET
        self.is_stale = False
        for name in waiting:
            if time.monotonic() > until:
                self.is_stale = True
                break
            path, known = self._folders[name], self._infos.get(name)
            info = summarise(path, self.root)
            mark = _mark(path, info.state)
            if known is None or known[1] != info or known[0] != mark:
                found.append(name)
            self._infos[name], self._read_at[name] = (mark, info), time.monotonic()
        return found

    def _list(self, written: Sequence[str]) -> None:
        """Make the lines again, and note which differ from before or belong to a run that has ``written``."""
        read = {name: info for name, (_, info) in self._infos.items()}
        infos = [read.get(name) or _unread(name, path) for name, path in self._folders.items()]
        differing = changed_keys(infos)
        unusual = unusual_keys(differing)
        lines = {info.name: _line(info, differing[info.path], unusual[info.path]) for info in infos}
        for name in self._lines.keys() - lines.keys():
            self._gone[name] = self.version
            del self._changed[name]
        for name, line in lines.items():
            if line != self._lines.get(name) or name in written:
                self._changed[name] = self.version
                self._gone.pop(name, None)
        self._lines = lines

    def runs(self, since: int = 0) -> dict[str, Any]:
        """Return the runs that changed after the version ``since``, a line each, and those that are gone."""
        with self._lock:
            return {
                "version": self.version,
                "root": str(self.root),
                "runs": [line for name, line in self._lines.items() if self._changed[name] > since],
                "gone": [name for name, version in self._gone.items() if version > since],
            }

    def curves(self, names: Sequence[str], *, points: int, low: float | None, high: float | None) -> dict[str, Any]:
        """Return all curves of the runs from ``low`` to ``high`` and a point on either side, thinned for drawing."""
        found = {}
        least, most = -math.inf if low is None else low, math.inf if high is None else high
        for name in names:
            opened = self._open(name)
            if opened is None:
                continue
            lock, records = opened
            with lock:  # of this run alone: reading a large file holds nobody else up
                records.update()
                shown = records
                if records.sampled and low is not None and high is not None:
                    shown = records.between(low, high)
                curves = {
                    key: thin(shown.curves.get(key, Curve()), points, low=least, high=most, around=curve)
                    for key, curve in {**shown.curves, **records.curves}.items()
                }
                axes = axes_of(records, self._info(name))
                found[name] = {"curves": curves, "axes": axes, "sampled": shown.sampled, "bad": records.bad_lines}
        return found

    def details(self, name: str) -> dict[str, Any] | None:
        """Return what is known about one run besides its curves; None for a run that is not there."""
        with self._lock:
            path = self._folders.get(name)
        if path is None:
            return None
        status, info = run_files.status(path), self._info(name)
        return {
            **self._lines.get(name, {}),
            "best_steps": {key: step for key, (_, step) in info.best.items()},
            "error": status.get("error"),
            "warnings": status.get("warnings", []),
            "time": spent_time(status),
            "slow": slow_lines(status, 20),
            "plan": {key: str(value) for key, value in plan_of(path).items()},
            "places": run_files.facts(path)["places"],
            "environment": run_files.environment(path),
            "checkpoints": checkpoints(path),
            "best_checkpoint": best_checkpoint(info),
            "log": log_tail(path, 200),
        }

    def matching(self, text: str) -> list[str]:
        """Return the names of the runs that a filter selects; a wrong one is a :class:`UserError`."""
        with self._lock:
            infos = [info for _, info in self._infos.values()]
        return [info.name for info in matching(text, infos, changed_keys(infos))]

    def differences(self, names: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return what differs among runs: kind, key, and the value of each in the order of ``names``.

        Each run is compared with the first; None if one of them is not there.
        """
        with self._lock:
            folders = [self._folders.get(name) for name in names]
        if len(folders) < 2 or None in folders:
            return None
        first, *others = [folder for folder in folders if folder is not None]
        rows: dict[tuple[str, str], list[Any]] = {}
        for at, other in enumerate(others, 1):
            for one in compare(first, other):
                values = rows.setdefault((one.kind, one.key), [one.a, *[None] * len(others)])
                values[at] = one
        found = []
        for (kind, key), (value, *rest) in rows.items():
            # A run that is not mentioned has what the first one has.
            shown = [_shown(value)] + [_shown(value if one is None else one.b) for one in rest]
            found.append({"kind": kind, "key": key, "values": shown})
        return sorted(found, key=lambda row: KINDS.index(row["kind"]))

    def media(self, name: str) -> list[dict[str, Any]] | None:
        """Return the pictures, histograms, tables and texts of a run; None for a run that is not there."""
        with self._lock:
            path = self._folders.get(name)
        if path is None:
            return None
        return [
            {"kind": kind, "name": own, "step": step, "file": file.name} for kind, own, step, file in media_files(path)
        ]

    def medium(self, name: str, file: str) -> bytes | None:
        """Return the content of a file below ``media``; None for what is none of the run's own files there."""
        with self._lock:
            path = self._folders.get(name)
        known = [] if path is None else [found for *_, found in media_files(path) if found.name == file]
        if path is None or not known or not run_files.is_inside(path, known[0]):
            return None
        with suppress(OSError):
            if known[0].stat().st_size <= _LARGEST:
                return known[0].read_bytes()
        return None

    def _info(self, name: str) -> RunInfo:
        with self._lock:
            known = self._infos.get(name)
            path = self._folders[name]
        return known[1] if known is not None else summarise(path, self.root)

    def _open(self, name: str) -> tuple[threading.Lock, Records] | None:
        with self._lock:
            path = self._folders.get(name)
            if path is None:
                return None
            if name not in self._records:
                self._records[name] = threading.Lock(), Records(path, whole=_WHOLE)
            self._records.move_to_end(name)
            while len(self._records) > _MOST_OPEN:
                self._records.popitem(last=False)
            return self._records[name]


def _line(info: RunInfo, differing: Mapping[str, Any], unusual: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": info.name,
        "state": info.state,
        "step": info.step,
        "total": info.total,
        "began": info.began,
        "seconds": info.seconds,
        "dialect": info.dialect,
        "metric": info.main_metric,
        "best": {name: value for name, (value, _) in info.best.items()},
        "changed": {key: _shown(value) for key, value in differing.items()},
        "unusual": list(unusual),
        "tags": list(info.notes.tags),
        "note": info.notes.note,
        "archived": info.notes.archived,
    }


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _unread(name: str, path: Path) -> RunInfo:
    """Return what is known of a run by its name alone."""
    return RunInfo(
        path=path, name=name, state=UNKNOWN, step=0, total=None, began=None, seconds=None, last={}, best={}
    )  # fmt: skip


def _mark(folder: Path, state: str) -> tuple[Any, ...]:
    """Return what changes when a run writes. One that has ended writes its status first when it goes on."""
    found: list[Any] = []
    here = os.fspath(folder)
    files: list[Path] = [] if state in (FINISHED, FAILED) else [file for file, *_ in record_files(folder)]
    for path in (*map(os.fspath, files), os.path.join(here, "status.json"), os.path.join(here, NOTES)):
        try:
            facts = os.stat(path)
        except OSError:
            continue
        found.append((facts.st_size, facts.st_mtime_ns, facts.st_ino))
    return tuple(found)
