"""The priorities of mmcv 1.x and MMEngine hooks: a smaller number acts earlier."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from etude.errors.spelling import suggest
from etude.plan import PRIORITIES


class Priority(Enum):
    """Named priorities. Any integer from 0 to 100 is allowed, too."""

    HIGHEST = 0
    VERY_HIGH = 10
    HIGH = 30
    ABOVE_NORMAL = 40
    NORMAL = 50
    BELOW_NORMAL = 60
    LOW = 70
    VERY_LOW = 90
    LOWEST = 100


def get_priority(priority: int | str | Priority) -> int:
    """Return the number of a name (in any case), a number or a :class:`Priority`."""
    if isinstance(priority, Priority):
        return priority.value
    if isinstance(priority, int):
        if not 0 <= priority <= 100:
            raise ValueError(f"priority must be between 0 and 100, but got {priority}")
        return priority
    if isinstance(priority, str):
        if priority.upper() not in PRIORITIES:
            raise KeyError(f"no priority is called {priority!r}; {suggest(priority, PRIORITIES)}")
        return PRIORITIES[priority.upper()]
    raise TypeError(f"priority must be an integer or Priority enum value, but got {type(priority).__name__}")


def listed(hooks: Iterable[Any], stages: Iterable[str]) -> str:
    """Return a text for the log that lists, for every stage, the hooks that act there in order."""
    blocks = []
    for stage in stages:
        lines = [_line(hook) for hook in hooks if stage in hook.get_triggered_stages()]
        if lines:
            blocks.append("\n".join([f"{stage}:", *lines, " -------------------- "]))
    return "\n".join(blocks)


def _line(hook: Any) -> str:
    priority = getattr(hook, "priority", Priority.NORMAL)
    if isinstance(priority, int) and priority in {level.value for level in Priority}:
        priority = Priority(priority)
    # The columns of the originals' logs.
    return f"({priority.name if isinstance(priority, Priority) else priority:<12}) {type(hook).__name__:<35}"
