"""Properties that lead to another attribute: runners and loops keep their counters in Étude's run."""

from __future__ import annotations

from operator import attrgetter
from typing import Any


def reads(path: str) -> Any:
    """Return a property that only reads: ``attrgetter`` is faster than a method, and hooks ask several times a step."""
    return property(attrgetter(path))


def leads_to(path: str) -> Any:
    """Return a property that reads and writes the attribute at ``path``, such as ``engine.epoch``."""
    part, _, attribute = path.rpartition(".")

    def write(self: Any, value: Any) -> None:
        setattr(attrgetter(part)(self) if part else self, attribute, value)

    return property(attrgetter(path), write)
