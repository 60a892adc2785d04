"""Two finished runs held against each other: the first thing that differs, in the order in which it came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.checkpoint import foreign
from etude.checkpoint.store import Store
from etude.checkpoint.tools import Difference, differences
from etude.errors import ResumeError, UserError

#: What the clock says differs between any two runs.
_CLOCK = ("hook.Timer.", "hook.TimeBudget.", "events.writers.", "plan.folder")
_CLOCK_NAMES = ("time/", "memory/", "throughput/")


def steps_of(folder: Path) -> int:
    """How many steps a finished run has made."""
    entries = Store(folder / "checkpoints", write=False).entries()
    if entries:
        return entries[-1].step
    content = _foreign_state(folder)
    meta: Any = content.get("meta") or content
    return int(meta.get("iter", meta.get("iteration", meta.get("step", 0))))


def compare_runs(left: Path, right: Path) -> str | None:
    """None when both left the same behind; else what differs first: a line of the records, then a checkpoint."""
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
        return _first(differences(_foreign_state(left), _foreign_state(right)), "the last checkpoint")
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
    return path.startswith(_CLOCK) or any(name in path for name in _CLOCK_NAMES)


def _foreign_state(folder: Path) -> dict[Any, Any]:
    """The last checkpoint of a run that has another system's layout."""
    for pointer in ("last_checkpoint", "latest.pth", "latest"):
        path = folder / pointer
        if pointer == "last_checkpoint" and path.is_file():
            name = path.read_text().strip()
            path = Path(name) if Path(name).is_absolute() else folder / name
        if path.is_file():
            try:
                return foreign.read(path)
            except ResumeError:
                continue
    files = sorted(folder.glob("**/*.pth"), key=lambda path: path.stat().st_mtime)
    if not files:
        raise UserError(f"{folder} holds no checkpoint; does the config save any?")
    return foreign.read(files[-1])
