"""Reads the small JSON files of a run's folder. What is not of the shape that Étude writes is left out.

The files may be of another version, be cut off, or come from somebody else; no reader has to expect that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from etude.config import shapes
from etude.config.files import read_bytes, read_json
from etude.config.shapes import anything, measured, positive, rows, scalar, table, whole
from etude.errors import UserError, printable

Folder = str | os.PathLike[str]


def _best(value: Any) -> list[float | int]:
    number, step = rows(value, anything)
    return [measured(number), whole(step)]


def _pid(value: Any) -> int:
    if whole(value) >= 1 << 31:
        raise ValueError(f"{value} is the number of no process")
    return int(value)


def _optional_whole(value: Any) -> int | None:
    return None if value is None else whole(value)


_AS_THEY_ARE = (str, bool, type(None))
_STATUS: Mapping[str, Callable[[Any], Any]] = {
    "state": shapes.text, "host": shapes.text, "dialect": shapes.text, "error": shapes.text, "reason": shapes.text,
    "pid": _pid, "step": whole, "total": _optional_whole,
    "since": positive, "seen": positive, "began": positive, "seconds": positive,
}  # fmt: skip
#: Has a line for each process that trained the run and has ended.
LIVES = "lives.jsonl"
_LIFE: Mapping[str, Callable[[Any], Any]] = {
    "began": positive, "elapsed": positive, "seen": positive, "from": whole, "to": whole, "state": shapes.text,
}  # fmt: skip
#: What was learnt from the training data alone, and what predictions use too: columns, classes, scales.
LEARNT = "learnt.json"
#: What a process writes while it trains.
_SIGNS = ("attempts.json", "metrics.jsonl", "timing.jsonl", "ledger.bin", "log.txt", "status.json", "checkpoints")
#: Mappings and lists whose bad entries are left out one by one.
_STATUS_TABLES: Mapping[str, Callable[[Any], Any]] = {
    "time": positive, "last": measured, "best": _best,
}  # fmt: skip


def is_inside(folder: Folder, path: Folder) -> bool:
    """Return whether a file is of a run's folder itself: a link may not lead out of it, to files of the reader."""
    here, there = os.fspath(folder), os.fspath(path)
    if os.path.dirname(there) == here and not os.path.islink(there):
        return True
    return os.path.realpath(there).startswith(os.path.join(os.path.realpath(here), ""))


def text(folder: Folder, name: str) -> str:
    """Return the text of a small file of a run's folder; empty where there is none that may be read."""
    path = os.path.join(folder, name)
    try:
        return read_bytes(path).decode("utf-8", "replace") if is_inside(folder, path) else ""
    except OSError:
        return ""


def _json(folder: Folder, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    return read_json(path) if is_inside(folder, path) else {}


def status(folder: Folder) -> dict[str, Any]:
    """Return ``status.json``: how a run is, or was when it wrote last."""
    found = _json(folder, "status.json")
    made = _fitting(found, _STATUS)
    if isinstance(found.get("plan"), dict):  # by far the most values
        made["plan"] = {
            key: item if type(item) in _AS_THEY_ARE else scalar(item) for key, item in found["plan"].items()
        }
    for name, of in _STATUS_TABLES.items():
        if isinstance(found.get(name), dict):
            made[name] = _fitting(found[name], dict.fromkeys(found[name], of))
    if isinstance(found.get("warnings"), list):
        made["warnings"] = [line for line in found["warnings"] if isinstance(line, str)]
    return made


def lives(folder: Folder) -> list[dict[str, Any]]:
    """Return what each process that trained a run has spent, the last one at the end; bad lines are left out."""
    texts = text(folder, LIVES).splitlines()
    found: list[Any] = [_parsed(line) for line in texts if line.strip()]
    found.append(_json(folder, "status.json").get("life"))
    made = []
    for one in found:
        if isinstance(one, dict) and isinstance(one.get("time"), dict):
            life = _fitting(one, _LIFE)
            if {"began", "elapsed", "from", "to", "state"} <= set(life):
                made.append(life | {"time": _fitting(one["time"], dict.fromkeys(one["time"], positive))})
    return made


def last_sign(folder: Folder) -> float:
    """Return when the files of a run were written last, in seconds since 1970; 0 where there are none."""
    times = [0.0]
    for name in _SIGNS:
        with suppress(OSError):
            times.append(os.stat(os.path.join(folder, name)).st_mtime)
    return max(times)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def facts(folder: Folder) -> dict[str, Any]:
    """Return ``facts.json``: parameter groups, hooks, and where each value of the plan was written."""
    found = _json(folder, "facts.json")
    groups, hooks = (
        [row for row in found.get(name) or () if isinstance(row, dict)] if isinstance(found.get(name), list) else []
        for name in ("groups", "hooks")
    )
    for hook in hooks:
        points, steps = hook.get("points"), hook.get("steps")
        hook["points"] = [str(point) for point in points] if isinstance(points, list) else []
        hook["steps"] = steps if type(steps) is int and steps > 0 else None
    places = found.get("places")
    return {
        "groups": [_fitting(group, dict.fromkeys(group, scalar)) for group in groups],
        "hooks": hooks,
        "places": _fitting(places, dict.fromkeys(places, shapes.text)) if isinstance(places, dict) else {},
    }


def code(folder: Folder) -> dict[str, str]:
    """Return ``code.json``: the texts of the imported files by their path in the project."""
    return {name: content for name, content in _json(folder, "code.json").items() if isinstance(content, str)}


def environment(folder: Folder) -> dict[str, Any]:
    """Return ``env.json``: where a run was started, with which versions, code and data."""
    found = _json(folder, "env.json")
    made: dict[str, Any] = {name: value for name, value in found.items() if name not in ("git", "data", "config")}
    for name in ("git", "data"):
        try:
            made[name] = table(found.get(name), shapes.text)
        except ValueError:
            continue
    if isinstance(found.get("config"), str):
        made["config"] = found["config"]
    return made


def processes(folder: Folder) -> int:
    """Return how many processes have trained a run."""
    flags = environment(folder).get("flags")
    count = flags.get("processes", 1) if isinstance(flags, dict) else 1
    return count if isinstance(count, int) and count > 0 else 1


def require_as_many(folder: Folder, count: int) -> None:
    """Refuse to replay a run with another number of processes than it was trained by."""
    trained = processes(folder)
    if trained != count:
        many = "one process" if trained == 1 else f"{trained} processes"
        remedy = f"add --nproc {trained}" if trained > 1 else "leave --nproc out"
        raise UserError(f"{printable(str(folder))} was trained by {many}, not by {count}: {remedy}")


def _fitting(found: Mapping[str, Any], schema: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Return the entries that the schema accepts."""
    made = {}
    for name, of in schema.items():
        if name in found:
            try:
                made[name] = of(found[name])
            except ValueError:
                continue
    return made
