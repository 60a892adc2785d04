"""Reads the last checkpoint of a finished run in another system's layout, to compare two such runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from etude.checkpoint.formats import foreign
from etude.errors import UserError

#: Files and folders that name, or are, the last checkpoint: mmcv 1.x, MMEngine and detectron2, McQuic.
_POINTERS = ("last_checkpoint", "latest.pth", "latest/last.ckpt", "latest/saved.ckpt")
#: Part, key, and what a number that begins at 0 lacks: mmcv and MMEngine, LiBai, McQuic, detectron2, others.
_COUNTERS = (
    ("meta", "iter", 0), ("trainer", "iter", 1), ("trainer", "_step", 0), ("", "iteration", 1), ("", "step", 0)
)  # fmt: skip
#: When, where and under which name a run was made: the config in words, times, paths of other files, random ids.
_BOOKKEEPING = re.compile(
    r"meta\.(time|config|cfg|env_info|experiment_name|hook_msgs\.(last|best)_ckpt|etude\.(id|scalars\..*))$|etude\.id$"
    r"|message_hub\.(log_scalars\.(.*/)?(time|data_time)|runtime_info\.(cfg|last_ckpt|best_ckpt|experiment_name))"
    r"|trainer\.(etude\.)?storage\.(history|latest|hints)\.(.*/)?(time|data_time|rank_data_time|eta_seconds)(\.|$)"
    r"|trainer\.(etude\.)?hooks\.(PeriodicWriter\S*\.writers|PeriodicCheckpointer\S*\.recent)\."
    r"|config\.train\.saveDir$"
)


def last_state(folder: Path) -> dict[Any, Any]:
    """Return everything in the last checkpoint below ``folder``."""
    for path in _candidates(folder):
        if path.is_dir():  # LiBai: a file for each part
            return {child.name: foreign.read(child) for child in sorted(path.iterdir()) if child.is_file()}
        return foreign.read(path)
    raise UserError(f"{folder} holds no checkpoint; does the config save any?")


def steps_in(state: Mapping[Any, Any]) -> int:
    """Return how many steps were done when ``state`` was saved, in any system's words."""
    for part, word, more in _COUNTERS:
        place = state.get(part) if part else state
        if isinstance(place, Mapping) and isinstance(place.get(word), int):
            return _capped(int(place[word]) + more, state)
    return 0


def _capped(steps: int, state: Mapping[Any, Any]) -> int:
    """Correct the iteration that LiBai saves after the last step, which is one too many; its schedule has the true
    one.
    """
    schedule = state.get("lr_scheduler")
    seen = schedule.get("last_epoch") if isinstance(schedule, Mapping) else None
    return min(steps, seen) if isinstance(seen, int) and seen > 0 else steps


def is_bookkeeping(path: str) -> bool:
    """Return whether the value at ``path`` does not describe the training itself."""
    return _BOOKKEEPING.match(path) is not None


def _candidates(folder: Path) -> Iterator[Path]:
    for pointer in _POINTERS:
        path = folder / pointer
        if pointer == "last_checkpoint" and path.is_file():
            path = folder / path.read_text(encoding="utf-8").strip()
        if path.exists():
            yield path
    yield from sorted(
        (path for kind in ("*.pth", "*.ckpt") for path in folder.glob(f"**/{kind}")),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
