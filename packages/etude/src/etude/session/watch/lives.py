"""Keeps what each life of a run has spent: ``lives.jsonl`` has a line for each process that trained it and has ended.

The life that goes on, or was the last one, is in ``status.json``. The next process moves it from there, so a process
that is killed has nothing to write at its end. When it ended is read from the times of the files that it wrote last.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.checkpoint.attempts import Attempts
from etude.config import run_files
from etude.config.files import read_json
from etude.dist.world import stat_of


@dataclass(frozen=True)
class Before:
    """What the files of a run say of its last process, before the next one writes."""

    #: When it wrote last, in seconds since 1970.
    seen: float = 0.0
    #: How many steps it had done.
    reached: int = 0


def look_before(folder: Path) -> Before:
    """Return what is known of the last process of a run. Call it before anything is written."""
    return Before(run_files.last_sign(folder), Attempts(folder, say=print).reached())


def go_on(folder: Path, before: Before) -> None:
    """Add the last process to the lives of the run."""
    life = read_json(folder / "status.json").get("life")
    if not isinstance(life, dict):
        return
    if life.get("state") == "running":  # it was killed
        steps = [step for step in (life.get("to"), before.reached) if type(step) is int]
        life |= {"state": "killed", "seen": round(before.seen, 3), "to": max(steps, default=0)}
    with suppress(OSError):  # a full disk costs the run this line, not its training
        path = folder / run_files.LIVES
        with open(
            os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "w"
        ) as file:
            file.write(json.dumps(life) + "\n")


def begin_anew(folder: Path) -> None:
    """Forget the lives of a run that starts from the beginning."""
    with suppress(OSError):
        (folder / run_files.LIVES).unlink(missing_ok=True)


class Life:
    """This process as a life of its run: what it has spent so far."""

    def __init__(self, step: int, *, began: float, whole_process: bool) -> None:
        """``began``: when it started by ``time.monotonic()``; with ``whole_process`` the process itself."""
        self._step = step
        self._loading = max(0.0, _age() - (time.monotonic() - began)) if whole_process else 0.0
        self._clock = began - self._loading
        self._began = time.time() - (time.monotonic() - self._clock)

    def record(self, step: int, state: str, spent: Mapping[str, float], start: str) -> dict[str, Any]:
        """Return what the life has spent, as it is kept in ``status.json``. ``start`` names the time of starting."""
        spent = {**spent, start: spent[start] + self._loading} if start in spent else spent
        return {
            "began": round(self._began, 3),
            "elapsed": round(time.monotonic() - self._clock, 3),
            "from": self._step,
            "to": step,
            "state": state,
            "time": {name: round(seconds, 3) for name, seconds in spent.items()},
        }


def _age() -> float:
    """Return for how many seconds this process has existed; 0 where the system does not tell."""
    try:
        up = float(Path("/proc/uptime").read_text().split()[0])
        return up - int(stat_of("self")[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
