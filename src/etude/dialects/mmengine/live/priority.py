"""Priorities of hooks, by name or as a number from 0 to 100."""

from __future__ import annotations

from etude.dialects.openmm.priority import Priority

__all__ = ["Priority", "get_priority"]


def get_priority(priority: int | str | Priority) -> int:
    """The number behind a name (in any case), a number or a :class:`Priority`."""
    if isinstance(priority, int):
        if not 0 <= priority <= 100:
            raise ValueError(f"priority must be between 0 and 100, but got {priority}")
        return priority
    if isinstance(priority, Priority):
        return int(priority.value)
    if isinstance(priority, str):
        return int(Priority[priority.upper()].value)
    raise TypeError(f"priority must be an integer or Priority enum value, but got {type(priority).__name__}")
