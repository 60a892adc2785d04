"""Finds the runs below a folder and summarizes each of them."""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.errors import UserError, printable
from etude.fast_dataclass import field, record
from etude.metrics.direction import improves, is_scored, lower_is_better
from etude.report import formats
from etude.report.lines import number
from etude.report.notes import Notes, read_notes
from etude.report.records import CLOCK, Records, format_of, record_files
from etude.report.status import FINISHED, RUNNING, state_of

_TIMESTAMP = re.compile(r"\d{8}[-_]\d{6}(-\d+)?")
_MARKS = ("metrics.jsonl", "status.json", "plan.yaml")
#: Folders that a run makes for itself, or that hold no runs.
_PASSED = {"checkpoints", "vis_data", "tensorboard", "tf_logs", "wandb", "mlruns", "__pycache__", ".git"}
_DEEPEST = 6
#: Where `etude train` puts runs, and where names of runs are looked for.
_DEFAULT = "runs"


@record
class RunInfo:
    """One run in a line."""

    path: Path
    name: str
    state: str
    step: int
    total: int | None
    began: float | None
    seconds: float | None
    last: Mapping[str, float]
    best: Mapping[str, tuple[float, int]]
    plan: Mapping[str, Any] = field(default_factory=dict)
    dialect: str = "native"
    notes: Notes = field(default_factory=Notes)

    @cached_property
    def main_metric(self) -> str:
        """The metric a person asks for first: of the validation, and no loss where there is another."""
        names = [name for name in self.best if not name.startswith(CLOCK)]
        ranked = sorted(names, key=lambda n: (n.startswith("train/"), "loss" in n, names.index(n)))
        return ranked[0] if ranked else ""


def find_runs(root: str | Path) -> list[Path]:
    """Return every run folder below ``root`` (or ``root`` itself), in the order of their paths."""
    top = Path(root)
    if not top.exists():
        hint = (
            "; `etude train CONFIG` makes it" if top == Path(_DEFAULT) else "; `etude runs` lists the runs below runs/"
        )
        raise UserError(f"there is no folder {printable(str(top))}{hint}")
    if not top.is_dir():
        raise UserError(f"{printable(str(top))} is a file; give a folder with runs")
    return [Path(found) for found in sorted(_below(str(top), 0), key=lambda found: found.split(os.sep))]


def _below(folder: str, depth: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return
    names = {entry.name for entry in entries}
    if not names.isdisjoint(_MARKS) or any(one.is_run(folder, names) for one in formats.known()):
        yield folder
        return
    for entry in entries:
        if depth < _DEEPEST and entry.name not in _PASSED and entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path, depth + 1)


def named_path(given: str) -> str:
    """Return the path that ``given`` means: itself, or below ``runs`` as `etude runs` prints it, or a run's time.

    What leads nowhere is returned as it is, for the reader to complain about.
    """
    if not given or "://" in given or os.path.exists(given):
        return given
    below = os.path.join(_DEFAULT, given)
    if os.path.exists(below):
        return below
    found = find_runs(_DEFAULT) if _TIMESTAMP.fullmatch(given) and os.path.isdir(_DEFAULT) else []
    meant = [str(run) for run in found if run.name == given]
    if len(meant) > 1:
        raise UserError(f"{given} may be {' or '.join(map(printable, meant))}; say which")
    return meant[0] if meant else given


def find_run(path: str | Path) -> Path:
    """Return the one run that ``path`` means: a run folder or its name, a file in it, or the newest run below it."""
    given = Path(named_path(str(path)))
    if given.is_file():
        given = given.parent
    if given.absolute().name == "vis_data":
        given = given.absolute().parent
    runs = find_runs(given)
    if not runs:
        for above in list(given.absolute().parents)[:3]:
            if any((above / mark).is_file() for mark in _MARKS) or record_files(above):
                return above
        raise UserError(
            f"{printable(str(given))} has no run: no metrics.jsonl, *.log.json, metrics.json or scalars.json"
        )
    return max(runs, key=_changed) if len(runs) > 1 else runs[0]


def _changed(folder: Path) -> float:
    times = [0.0]
    files: list[str | Path] = [*(path for path, *_ in record_files(folder)), os.path.join(folder, "status.json")]
    for name in files:
        try:
            times.append(os.stat(name).st_mtime)
        except OSError:
            continue
    return max(times)


def summarise(folder: Path, root: Path | None = None, *, records: Records | None = None) -> RunInfo:
    """Sum a run up: from ``status.json`` where the run ended in order, else from its records."""
    status = run_files.status(folder)
    state = state_of(folder, status)
    last: dict[str, float] = status.get("last", {})
    best = {name: (value, at) for name, (value, at) in status.get("best", {}).items()}
    step, began, seconds = status.get("step"), status.get("began"), status.get("seconds")
    if state != FINISHED or step is None or records is not None:
        if records is None:
            records = Records(folder, whole=4 << 20)
            records.update()
        last, best = latest(records), best_of(records)
        step = max(records.step, step or 0)
        began = began if began is not None else records.began
        if seconds is None and records.began is not None and records.ended is not None:
            seconds = records.ended - records.began
        elif seconds is not None and status.get("state") == RUNNING:
            seconds += _since(status.get("seen"), folder, records, state)
    return RunInfo(
        path=folder,
        name=name_of(folder, root),
        state=state,
        step=step,
        total=status.get("total"),
        began=began if began is not None else _changed(folder) or None,
        seconds=seconds,
        last=last,
        best=best,
        plan=status.get("plan", {}),
        dialect=status.get("dialect") or _dialect(folder),
        notes=read_notes(folder),
    )


def _since(seen: float | None, folder: Path, records: Records, state: str) -> float:
    """Return the seconds since ``status.json`` was written: until now, or until a killed run's last record."""
    if seen is None:
        return 0.0
    last = time.time() if state == RUNNING else records.ended or _changed(folder)
    return max(0.0, last - seen)


def name_of(folder: Path, root: Path | None = None) -> str:
    """Return a run's name: its path below ``root``, or the last parts of it that say anything."""
    if root is not None and folder != root:
        return _inside(str(folder), str(root))
    here = folder.absolute()
    return f"{here.parent.name}/{here.name}" if _TIMESTAMP.fullmatch(here.name) else here.name


def _inside(folder: str, root: str) -> str:
    """Return ``folder`` without ``root`` before it; ``Path.relative_to`` takes as long as reading the run does."""
    return folder if root == os.curdir else folder[len(root.rstrip(os.sep)) + 1 :]


def _dialect(folder: Path) -> str:
    own = any(os.path.isfile(os.path.join(folder, mark)) for mark in ("metrics.jsonl", "timing.jsonl"))
    found = None if own else format_of(folder)
    return "native" if found is None else found[0].dialect


def latest(records: Records) -> dict[str, float]:
    return {name: curve.values[-1] for name, curve in records.curves.items() if not name.startswith(CLOCK)}


def best_of(records: Records) -> dict[str, tuple[float, int]]:
    """Return the best value of every curve, and the step it was reached at; what is not finite never is the best."""
    found = {}
    for name, curve in records.curves.items():
        if name.startswith(CLOCK) or not is_scored(name):
            continue
        lower = lower_is_better(name)
        best, at = None, 0
        for step, value in zip(curve.steps, curve.values, strict=True):
            if improves(value, best, lower=lower):
                best, at = value, int(step)
        if best is not None:
            found[name] = (best, at)
    return found


def changed_keys(runs: Sequence[RunInfo]) -> dict[Path, dict[str, Any]]:
    """Return, for each run, the plan's keys whose values differ among the runs."""
    first: dict[str, Any] = {}
    several: set[str] = set()
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.plan.keys())
        for key, value in run.plan.items():
            known = first.setdefault(key, value)
            # The text decides: 1 and True are equal, NaN and NaN are not.
            if known is not value and key not in several and repr(known) != repr(value):
                several.add(key)
    planned = sum(1 for run in runs if run.plan)
    differing = [key for key in first if key in several or counts[key] < planned]
    return {run.path: {key: run.plan[key] for key in differing if key in run.plan} for run in runs}


def unusual_keys(changed: Mapping[Path, Mapping[str, Any]]) -> dict[Path, dict[str, Any]]:
    """Return, of each run's changed keys, those whose value fewer than half of the runs share."""
    values: dict[str, Counter[str]] = {}
    for own in changed.values():
        for key, value in own.items():
            values.setdefault(key, Counter())[repr(value)] += 1
    return {
        path: {key: value for key, value in own.items() if 2 * values[key][repr(value)] <= len(changed)}
        for path, own in changed.items()
    }


def sort_runs(runs: Iterable[RunInfo], by: str, *, reverse: bool = False) -> list[RunInfo]:
    """Sort by ``began`` (newest first), ``name``, ``state``, ``step``, ``seconds``, the best of a metric, or a key.

    Of a key of the plan, numbers come first, the smallest before the others, and runs without it last.
    """
    runs = list(runs)
    if by in ("name", "state"):
        return sorted(runs, key=lambda run: (getattr(run, by), run.name), reverse=reverse)
    if by in ("began", "step", "seconds"):
        return sorted(runs, key=lambda run: getattr(run, by) or 0, reverse=not reverse)
    if all(metric_of(run, by) is None for run in runs):
        having = sorted((run for run in runs if by in run.plan), key=lambda run: _rank(run.plan[by]), reverse=reverse)
        return having + [run for run in runs if by not in run.plan]
    lower = lower_is_better(by)
    missing = math.inf if lower else -math.inf
    best = {id(run): metric_of(run, by) for run in runs}
    return sorted(runs, key=lambda run: missing if (b := best[id(run)]) is None else b, reverse=lower == reverse)


def _rank(value: Any) -> tuple[bool, float, str]:
    found = number(value)
    return found is None, found or 0.0, str(value)


def metric_of(run: RunInfo, name: str) -> float | None:
    """Return the best of a metric; ``accuracy`` means ``val/accuracy`` where there is that."""
    for full in (name, f"val/{name}", f"test/{name}", f"train/{name}"):
        if full in run.best:
            return run.best[full][0]
    return None
