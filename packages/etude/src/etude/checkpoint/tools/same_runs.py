"""Compares two finished runs and reports the first difference, in the order of training."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from etude.checkpoint.formats import folders, layouts
from etude.checkpoint.store import Store
from etude.checkpoint.tools.compare import Difference, differences
from etude.errors import ResumeError, UserError

#: What the clock says differs between any two runs.
_CLOCK = ("hook.Timer.", "hook.TimeBudget.", "events.writers.", "plan.folder")
_CLOCK_NAMES = ("time/", "memory/", "throughput/")


@cache
def _bookkeeping() -> re.Pattern[str]:
    """Return what matches keys about when, where and under which name a run was made, in any installed layout."""
    return re.compile("|".join([r"etude\.id$", *(one.bookkeeping for one in layouts.known() if one.bookkeeping)]))


def steps_of(folder: Path) -> int:
    """Return how many steps a finished run has made."""
    entries = Store(folder / "checkpoints", write=False).entries()
    if entries:
        return entries[-1].step
    return folders.steps_in(_last_state(folder))


def _last_state(folder: Path) -> dict[Any, Any]:
    """Return everything in the last checkpoint of a run in another system's layout."""
    newest = folders.newest(str(folder))
    if newest is None:
        raise UserError(f"{folder} holds no checkpoint; does the config save any?")
    return folders.read(newest)


def saved_steps(folder: Path) -> int:
    """Return the step that a killed run can resume from; 0 where it has left no checkpoint."""
    try:
        return steps_of(folder)
    except (UserError, ResumeError):
        return 0


def compare_runs(left: Path, right: Path) -> str | None:
    """Return None if both runs left the same files; else the first difference: a line of the records, then a
    checkpoint."""
    return _compare_records(left, right) or _compare_states(left, right)


def _compare_records(left: Path, right: Path) -> str | None:
    pair = [_lines(folder / "metrics.jsonl") for folder in (left, right)]
    for number, (one, two) in enumerate(zip(*pair, strict=False), start=1):
        if one != two:
            return f"metrics.jsonl, line {number}:\n  - {one}\n  + {two}"
    if len(pair[0]) != len(pair[1]):
        return f"metrics.jsonl has {len(pair[0])} and {len(pair[1])} lines"
    return None


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _compare_states(left: Path, right: Path) -> str | None:
    stores = [Store(folder / "checkpoints", write=False) for folder in (left, right)]
    known = [{entry.step: entry.name for entry in store.entries()} for store in stores]
    if not known[0] or not known[1]:
        return _first(differences(_last_state(left), _last_state(right)), "the last checkpoint")
    if max(known[0]) != max(known[1]):
        return f"the runs ended at step {max(known[0])} and at step {max(known[1])}"
    for step in sorted(known[0].keys() & known[1].keys()):
        first, second = (store.load(names[step]).state for store, names in zip(stores, known, strict=True))
        found = _first(differences(first, second), f"step {step}")
        if found is not None:
            return found
    return None


def _first(found: list[Difference], where: str) -> str | None:
    counted = [one for one in found if not _is_clock(one.path)]
    if not counted:
        return None
    one = counted[0]
    more = f" (and {len(counted) - 1} more)" if len(counted) > 1 else ""
    return f"{where}: {one.path}{more}\n  - {one.left}\n  + {one.right}"


def _is_clock(path: str) -> bool:
    return (
        path.startswith(_CLOCK) or any(name in path for name in _CLOCK_NAMES) or _bookkeeping().match(path) is not None
    )
