"""Exceptions that the values of a foreign config caused, told as mistakes of the config.

The parts of another system are made as that system makes them, many of them only when training begins, and refuse wrong
values with assertions and plain exceptions. Before the first step, with no code of the user's involved, such an
exception is about the config: it is told with the place of what was being made, and nothing else.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from etude.config.files import display
from etude.errors import ConfigError, DataError, EtudeError, ResumeError, printable
from etude.plan import Plan

#: What the parts of the other systems refuse values with.
REFUSALS = (TypeError, ValueError, AssertionError, KeyError, AttributeError, RuntimeError, ZeroDivisionError, OSError)
_LOST = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)")
_OURS = os.path.dirname(os.path.abspath(__file__))


def as_mistake(error: BaseException, plan: Plan | None) -> EtudeError | None:
    """The error to report instead, or None where the exception is not about a config."""
    known: EtudeError | None = getattr(error, "etude_told", None)
    if known is not None:
        return known
    if plan is None or plan.builder == "native":
        return None
    if isinstance(error, ConfigError) and not any(finding.at for finding in error.findings):
        at = next(filter(None, (_place_of(name, plan) for name in _being_made(error))), "")
        return ConfigError([replace(finding, at=at) for finding in error.findings]) if at else None
    if isinstance(error, EtudeError) or not isinstance(error, REFUSALS):
        return None
    if any(not is_library(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
        return None
    said = error.args[0] if isinstance(error, KeyError) and error.args else error
    message = printable(str(said)) or type(error).__name__
    if isinstance(error, FileNotFoundError) and re.search(r"\.(pth|pt|ckpt|bin|safetensors)\b|checkpoint", message):
        return ResumeError(message)
    made = list(dict.fromkeys(_being_made(error)))
    told = f"{made[0]} cannot be made: {message}" if made else f"{type(error).__name__}: {message}"
    places = filter(None, (_place_of(name, plan) for name in made))
    return ConfigError(told, at=next(places, display(plan.files[0]) if plan.files else ""))


def lost_worker(error: BaseException) -> DataError | None:
    """A process of torch's loader that died: wherever the news arrives, it is the data that failed."""
    if not isinstance(error, RuntimeError) or not _LOST.search(str(error)):
        return None
    return DataError(f"{printable(str(error)).strip()} Out of memory, or of /dev/shm? Fewer workers need less of both")


def is_library(filename: str) -> bool:
    """Whether a file is Étude's, Python's or an installed package's, and not the user's."""
    return filename.startswith((_OURS, "<frozen", sys.base_prefix)) or "site-packages" in filename


def _being_made(error: BaseException) -> Iterator[str]:
    """The types of the configs in the frames of an exception, innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for name in ("cfg", "config", "spec"):
            given: Any = frame.f_locals.get(name)
            kind = given.get("type") if isinstance(given, dict) else None
            if kind is not None:
                yield kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _place_of(made: str, plan: Plan) -> str:
    """The first line of the config's files that names ``made`` as a type; empty where none does."""
    wanted = re.compile(rf"type\s*[=:]\s*[\"']?[\w.]*\b{re.escape(made)}\b")
    for file in plan.files:
        try:
            with open(file, encoding="utf-8") as stream:
                number = next((n for n, line in enumerate(stream, 1) if wanted.search(line)), None)
        except (OSError, UnicodeDecodeError):
            continue
        if number is not None:
            return f"{display(file)}:{number}"
    return ""
