"""Defines what every experiment tracker offers, to our own writers and to the logger hooks of other systems."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.errors import MissingExtra


class Service:
    """One run of a tracker. All calls come from one thread (see :mod:`etude.events.trackers.outbox`), so they may wait.

    ``begin`` takes the settings of the tracker's own ``init``. What a tracker cannot keep, it leaves.
    """

    #: The package that has to be installed, and the extra that installs it, if one does.
    package, extra = "", ""
    #: Whether :meth:`artifact` returns only when the files are sent; else a later call may wait for them.
    sends_at_once = False

    @classmethod
    def require(cls, purpose: str) -> None:
        """Raise :class:`MissingExtra` unless the package is installed; it is not imported."""
        if cls.package and not is_installed(cls.package):
            raise MissingExtra(cls.package, cls.extra, purpose)

    def begin(self, *args: Any, **settings: Any) -> Any:
        """Open the tracker's run."""
        raise NotImplementedError

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        raise NotImplementedError

    def image(self, name: str, value: Any, step: int) -> None: ...
    def histogram(self, name: str, value: Any, step: int) -> None: ...
    def text(self, name: str, value: str, step: int) -> None: ...
    def artifact(self, name: str, path: Path) -> None: ...
    def flush(self) -> None:
        """Write down what came since the last call: at the end of a round of calls."""

    def finish(self) -> None: ...


def is_installed(package: str) -> bool:
    """Return whether ``import package`` would find something."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # a submodule of a package that is not there
        return False
    except ValueError:  # a module without a spec: somebody has put it there
        return True


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values that are finite, for trackers that refuse others."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def files_in(path: Path) -> list[tuple[str, Path]]:
    """Return the files of a folder with their names relative to it; a file alone under its own name."""
    if not path.is_dir():
        return [(path.name, path)]
    return [(file.relative_to(path).as_posix(), file) for file in sorted(path.rglob("*")) if file.is_file()]
