"""Checks of arguments: the exception that users of mmcv know, which is also a finding of Étude."""

from __future__ import annotations

import re

from etude.dialects.openmm.errors import ConfigAssertionError, ConfigKeyError, ConfigTypeError, ConfigValueError
from etude.errors import DataError, UserCodeError, printable

__all__ = [
    "ConfigAssertionError", "ConfigKeyError", "ConfigTypeError", "ConfigValueError", "MissingOutput", "WrongOutputs",
    "require", "tell_of_data",
]  # fmt: skip


class MissingOutput(UserCodeError, KeyError):
    """A model's step does not return what the runner or a hook needs."""

    __str__ = Exception.__str__


class WrongOutputs(UserCodeError, TypeError):
    """A model's step does not return a dict."""


def tell_of_data(error: Exception, where: str) -> None:
    """Let the command line report ``error``, which came while a batch was drawn, as one of the data."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    said = lines[-1].removeprefix(f"{kind}: ") if lines else ""
    traced = re.findall(r'File "([^"]+)", line (\d+)', str(error))  # what a worker tells of its traceback
    place = " ({}:{})".format(*traced[-1]) if traced else ""
    told = DataError(f"{where}: {kind}: {printable(said)}{place}")
    told.__cause__ = error
    error.etude_told = told  # type: ignore[attr-defined]


def require(ok: bool, message: str) -> None:
    """Raise an ``AssertionError``, as mmcv does for these arguments, also under ``python -O``."""
    if not ok:
        raise ConfigAssertionError(message)
