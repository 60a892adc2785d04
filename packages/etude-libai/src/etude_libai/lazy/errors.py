"""The errors of lazy configs, with Hydra's class names, which users catch.

If Hydra is installed they are subclasses of its errors, too, because scripts import those.
"""

from __future__ import annotations

import importlib
import importlib.machinery
from typing import Any

from etude.errors import UserError


def _of_hydra(name: str) -> tuple[type[Any], ...]:
    """Return Hydra's class of this name; nothing if Hydra is not installed, or its errors are Étude's."""
    found = importlib.machinery.PathFinder.find_spec("hydra")
    if found is None or found.origin is None:
        return ()
    module = importlib.import_module("hydra.errors")
    return () if type(module).__name__ == "Served" else (getattr(module, name),)


class HydraException(UserError, *_of_hydra("HydraException")):  # type: ignore[misc]
    """The base class of errors of overrides and instantiation."""


class CompactHydraException(HydraException, *_of_hydra("CompactHydraException")):  # type: ignore[misc]
    """An error whose message is enough without a traceback."""


class OverrideParseException(CompactHydraException, *_of_hydra("OverrideParseException")):  # type: ignore[misc]
    """A command-line override cannot be parsed."""

    def __init__(self, override: str, message: str) -> None:
        self.override, self.message = override, message
        Exception.__init__(self, message)


class InstantiationException(CompactHydraException, *_of_hydra("InstantiationException")):  # type: ignore[misc]
    """A target cannot be found or called, or it raised. The original exception is the ``__cause__``."""
