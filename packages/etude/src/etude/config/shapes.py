"""Checks values that were read from a file: each function returns what it was given, or raises ``ValueError``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
#: Larger numbers fit no counter of any file system, tensor or clock.
_MOST = 1 << 63


def whole(value: Any) -> int:
    """Return a whole number that is not negative."""
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(f"{_shown(value)} is not a whole number")
    return value


def real(value: Any) -> float:
    """Return a number that is finite."""
    if type(value) not in (int, float) or not -1e300 < value < 1e300:
        raise ValueError(f"{_shown(value)} is not a number")
    return float(value)


def measured(value: Any) -> float:
    """Return a number, also one that is not finite, which JSON may have as a text: ``"nan"``."""
    if isinstance(value, str) and value.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(value)
    if type(value) is float:
        return value
    return real(value)


def positive(value: Any) -> float:
    """Return a number of seconds, or a time, that a clock can show."""
    if not 0 <= real(value) < 1e11:
        raise ValueError(f"{_shown(value)} is not a time")
    return float(value)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a text")
    return value


def table(value: Any, of: Callable[[Any], T]) -> dict[str, T]:
    """Return a mapping from texts to what ``of`` accepts."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is not a mapping")
    return {text(key): of(item) for key, item in value.items()}


def rows(value: Any, of: Callable[[Any], T]) -> list[T]:
    """Return a list of what ``of`` accepts."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_shown(value)} is not a list")
    return [of(item) for item in value]


def anything(value: Any) -> Any:
    return value


def scalar(value: Any) -> Any:
    """Return a text, a finite number, a truth value or None; other values of a plan as their text."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value):
        return value
    return _shown(value)


def _shown(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a very long number"
