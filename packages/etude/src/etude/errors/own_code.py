"""Tells Étude's code from the user's: by the packages of the engine and of its guests.

A guest package registers itself when it is imported. Its hooks and runners then count as known code: checkpoints are
written while they go on, and tracebacks and messages point past them, to the user's line.
"""

from __future__ import annotations

import os
import sys

_PACKAGES = {"etude"}


def add_package(name: str) -> None:
    """Count a top-level package as Étude's own code."""
    _PACKAGES.add(name)


def is_own(module: str | None) -> bool:
    """Return whether a module, by its full name, belongs to the engine or to a guest."""
    return bool(module) and str(module).partition(".")[0] in _PACKAGES


def own_folders() -> tuple[str, ...]:
    """Return the folders of these packages, as far as they have been imported."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(_PACKAGES))
    return tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in files if file)
