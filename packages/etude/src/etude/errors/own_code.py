"""Tells Étude's code from the user's: by the packages of the engine and of its guests.

A guest package registers itself when it is imported. Its hooks and runners then count as known code: checkpoints are
written while they go on, and tracebacks and messages point past them, to the user's line.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from types import TracebackType
from typing import Any

_PACKAGES = {"etude"}


def add_package(name: str) -> None:
    """Count a top-level package as Étude's own code."""
    _PACKAGES.add(name)


def is_own(module: str | None) -> bool:
    """Return whether a module, by its full name, belongs to the engine or to a guest."""
    return bool(module) and str(module).partition(".")[0] in _PACKAGES


def own_folders() -> tuple[str, ...]:
    """Return the folders of these packages, of those that have been imported."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(_PACKAGES))
    return tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in files if file)


def is_library(filename: str) -> bool:
    """Return whether a file is Étude's, Python's or an installed package's, and not the user's."""
    return filename.startswith((*own_folders(), "<frozen", sys.base_prefix)) or "site-packages" in filename


def who(part: Any, method: str = "") -> str:
    """Return ``Net.forward (parts.py:12)``; of code of an installed package the name alone."""
    import inspect  # slow to import, and needed only for a message

    while isinstance(part, partial):
        part = part.func
    found = part if hasattr(part, "__qualname__") else getattr(type(part), method, None) if method else None
    owner = part if hasattr(part, "__qualname__") else type(part)
    name = str(owner.__qualname__).rpartition("<locals>.")[2]
    called = f"{name}.{method}" if method and not inspect.isroutine(part) else name
    return f"{called}{line_of(found if found is not None else owner)}"


def lines_of_user(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback with the frames of the user's code alone; the whole if it has none."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept = [frame for frame in frames if not is_library(frame.tb_frame.f_code.co_filename)]
    found: TracebackType | None = None
    for frame in reversed(kept or frames):
        found = TracebackType(found, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return found


def line_of(target: Any) -> str:
    """Return `` (parts.py:12)`` for a class or function of the user; empty for others."""
    import inspect

    try:
        file, line = inspect.getsourcefile(inspect.unwrap(target)), inspect.getsourcelines(target)[1]
    except (OSError, TypeError):
        return ""
    return "" if file is None or is_library(file) else f" ({_shown(file)}:{line})"


def _shown(file: str) -> str:
    """Return a path relative to the current folder, if it is below it."""
    relative = os.path.relpath(file)
    return os.path.abspath(file) if relative.startswith("..") else relative
