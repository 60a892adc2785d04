"""The named levels that order hooks."""

from __future__ import annotations

from enum import Enum


class Priority(Enum):
    """A smaller number acts earlier; any integer from 0 to 100 lies between the names."""

    HIGHEST = 0
    VERY_HIGH = 10
    HIGH = 30
    ABOVE_NORMAL = 40
    NORMAL = 50
    BELOW_NORMAL = 60
    LOW = 70
    VERY_LOW = 90
    LOWEST = 100
