"""Properties that lead to an attribute of a part: runners and loops keep their counters in Étude's run."""

from __future__ import annotations

from operator import attrgetter
from typing import Any


def reads(attribute: str) -> Any:
    """Return a property that only reads: ``attrgetter`` is faster than a method, and hooks ask several times a step."""
    return property(attrgetter(attribute))


def leads_to(part: str, attribute: str) -> Any:
    """Return a property that reads and writes ``attribute`` of the object that is called ``part``."""

    def write(self: Any, value: Any) -> None:
        setattr(getattr(self, part), attribute, value)

    return property(attrgetter(f"{part}.{attribute}"), write)
