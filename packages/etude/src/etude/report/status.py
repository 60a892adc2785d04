"""Determines the state of a run from the files in its folder."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.dist.world import stat_of

RUNNING, FINISHED, FAILED, INTERRUPTED, RESUMABLE, UNKNOWN = (
    "running", "finished", "failed", "interrupted", "resumable", "unknown",
)  # fmt: skip
STATES = (RUNNING, FINISHED, FAILED, INTERRUPTED, RESUMABLE, UNKNOWN)
#: A folder without a status is taken for running while its records are younger than this.
_FRESH = 60.0


def state_of(folder: Path, status: Mapping[str, Any]) -> str:
    """Return one of :data:`STATES`."""
    said = status.get("state")
    if said in (FINISHED, FAILED):
        return str(said)
    if said == RUNNING and is_alive(status):
        return RUNNING
    if said is None:
        return _guess(folder)
    return RESUMABLE if has_checkpoint(folder) else INTERRUPTED


def is_alive(status: Mapping[str, Any]) -> bool:
    """Return whether the process of ``status`` still runs; one of another machine does as long as it writes."""
    pid, since = status.get("pid"), status.get("since")
    if not isinstance(pid, int) or pid <= 0 or not isinstance(since, int | float):
        return False
    if status.get("host") != socket.gethostname():
        return time.time() - float(status.get("seen", since)) < 10 * _FRESH
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and another user's
        pass
    if stat_of(pid)[:1] == ["Z"]:  # over, and its parent has not noticed; in a container that may never happen
        return False
    started = _started(pid)
    return started is None or started <= since + 5  # else the number was given to another process since


def _started(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None where the system does not tell."""
    try:
        ticks = int(stat_of(pid)[19])
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def has_checkpoint(folder: Path) -> bool:
    return (
        any((folder / "checkpoints").glob("step-*"))
        or any(folder.glob("*.pth"))
        or ((folder / "last_checkpoint").is_file())
    )


def _guess(folder: Path) -> str:
    from etude.report.records import record_files

    times = []
    for path, *_ in record_files(folder):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return RUNNING if times and time.time() - max(times) < _FRESH else UNKNOWN
