"""Levels that order hooks: a lower value acts earlier."""

from __future__ import annotations

from etude.dialects.openmm.priority import Priority
from etude.errors import suggest
from etude.plan import PRIORITIES

__all__ = ["Priority", "get_priority"]


def get_priority(priority: int | str | Priority) -> int:
    """The value of a level given as a name in any case, a number or a :class:`Priority`."""
    if isinstance(priority, Priority):
        return priority.value
    if isinstance(priority, int):
        if not 0 <= priority <= 100:
            raise ValueError(f"a priority lies between 0 and 100, got {priority}")
        return priority
    if isinstance(priority, str):
        if priority.upper() not in PRIORITIES:
            raise KeyError(f"no priority is called {priority!r}; {suggest(priority, PRIORITIES)}")
        return PRIORITIES[priority.upper()]
    raise TypeError(f"a priority is a name, an integer or a Priority, got {priority!r}")
