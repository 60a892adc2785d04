"""Checks arguments. The exceptions are those of mmcv, and Étude's error reports understand them, too."""

from __future__ import annotations

import re
import sys
import traceback

from etude.config.files import display
from etude.errors import DataError, UserCodeError, printable
from etude.errors.advice import release_hint
from etude.errors.own_code import own_folders
from etude_openmm.shared.errors import ConfigAssertionError


class MissingOutput(UserCodeError, KeyError):
    """A model's step does not return what the runner or a hook needs."""

    # KeyError's own __str__ would show the repr of the message.
    __str__ = Exception.__str__


class WrongOutputs(UserCodeError, TypeError):
    """A model's step does not return a dict."""


def explain_data_error(error: Exception, where: str) -> None:
    """Let the command line report ``error``, which was raised while a batch was loaded, as an error of the data."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    said = lines[-1].removeprefix(f"{kind}: ") if lines else ""
    traced = re.findall(r'File "([^"]+)", line (\d+)', str(error))  # errors of workers contain their traceback
    own = [f"{file}:{line}" for file, line in traced if _is_users(file)]
    place = raised_by_user(error) or next(iter(own[::-1]), ":".join(traced[-1]) if traced else "")
    reported = DataError(f"{where}: {kind}: {printable(said)}{f' ({place})' if place else ''}{release_hint(said)}")
    reported.__cause__ = error
    error.etude_reported = reported  # type: ignore[attr-defined]


def raised_by_user(error: BaseException) -> str | None:
    """Return ``file:line`` where user code raised ``error`` or its first cause; None if other code raised it."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not _is_users(frames[-1].filename):
        return None
    return f"{display(frames[-1].filename)}:{frames[-1].lineno}"


def _is_users(file: str) -> bool:
    return not file.startswith((*own_folders(), "<frozen", sys.base_prefix)) and "site-packages" not in file


def require(ok: bool, message: str) -> None:
    """Raise an ``AssertionError`` if not ``ok``, as mmcv does, but also under ``python -O``."""
    if not ok:
        raise ConfigAssertionError(message)
