"""The errors of lazy configs, under the class names that their users catch (Hydra's).

Where Hydra itself is installed they are of its classes, too: scripts import those.
"""

from __future__ import annotations

import importlib
import importlib.machinery
from typing import Any

from etude.errors import UserError


def _of_hydra(name: str) -> tuple[type[Any], ...]:
    """Hydra's class of this name; nothing where Hydra is not installed, or where its errors are ours."""
    found = importlib.machinery.PathFinder.find_spec("hydra")
    if found is None or found.origin is None:
        return ()
    module = importlib.import_module("hydra.errors")
    return () if type(module).__name__ == "Served" else (getattr(module, name),)


class HydraException(UserError, *_of_hydra("HydraException")):  # type: ignore[misc]
    """The root of what an override or an instantiation raises."""


class CompactHydraException(HydraException, *_of_hydra("CompactHydraException")):  # type: ignore[misc]
    """One whose message says enough without a traceback."""


class OverrideParseException(CompactHydraException, *_of_hydra("OverrideParseException")):  # type: ignore[misc]
    """A command-line override that the grammar does not know."""

    def __init__(self, override: str, message: str) -> None:
        self.override, self.message = override, message
        Exception.__init__(self, message)


class InstantiationException(CompactHydraException, *_of_hydra("InstantiationException")):  # type: ignore[misc]
    """A target that cannot be found or called, or that raised; the original exception is the ``__cause__``."""
