"""Forbids the code that a config names: ``--no-python-config``, or ``ETUDE_NO_PYTHON_CONFIG=1`` in the environment.

It is kept in the environment so that the processes which a command starts (ranks, trials of a sweep) know it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from etude.errors import ConfigError

NAME = "ETUDE_NO_PYTHON_CONFIG"
FLAG = "--no-python-config"
#: Why the file that is read builds on no program: the plan of a run, which Étude has written, is data.
_data: ContextVar[str] = ContextVar("data", default="")


def is_forbidden() -> bool:
    """Return whether configs may run no code of the user."""
    return os.environ.get(NAME, "") not in ("", "0")


def words() -> list[str]:
    """Return the flag, for a command that another machine runs."""
    return [FLAG] if is_forbidden() else []


def refuse_program(path: str) -> None:
    """Raise for a Python file that reading a config would run, where that is forbidden."""
    if path.endswith(".py") and is_forbidden():
        raise ConfigError(f"a Python config runs code, and {FLAG} forbids that", at=os.path.relpath(path))
    if path.endswith(".py") and _data.get():
        raise ConfigError(f"{_data.get()} is data, and builds on no Python file", at=os.path.relpath(path))


@contextmanager
def data(what: str) -> Iterator[None]:
    """Refuse every Python file inside the block, where ``what`` is read; an empty ``what`` changes nothing."""
    token = _data.set(what or _data.get())
    try:
        yield
    finally:
        _data.reset(token)


@contextmanager
def forbidden(yes: bool = True) -> Iterator[None]:
    """Forbid code inside the block, in this process and in those that it starts; nothing changes unless ``yes``."""
    before = os.environ.get(NAME)
    if yes:
        os.environ[NAME] = "1"
    try:
        yield
    finally:
        if yes:
            os.environ.pop(NAME, None) if before is None else os.environ.__setitem__(NAME, before)
