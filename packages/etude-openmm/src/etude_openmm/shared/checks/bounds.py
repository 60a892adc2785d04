"""Bounds of values, as tables: name of a class → parameter → what its value has to be. Nothing is made. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class Bound(NamedTuple):
    """What a value has to be: a test, the words for it, and words that it may be a slip of."""

    fits: Callable[[Any], bool]
    want: str
    words: tuple[str, ...] = ()


#: Names of classes (``*`` stands for anything) → parameter → what it has to be.
Bounds = Mapping[str, Mapping[str, Bound]]


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def at_least(least: int) -> Bound:
    return Bound(lambda value: is_whole(value) and value >= least, f"a whole number of at least {least}")


LEAST_ZERO = Bound(lambda value: is_number(value) and value >= 0, "a number of at least 0")
SHARE = Bound(lambda value: is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
OPEN_SHARE = Bound(lambda value: is_number(value) and 0 < value < 1, "a number between 0 and 1, neither of them")
OF_OPTIMIZERS: Bounds = {
    "SGD": {"lr": LEAST_ZERO, "momentum": LEAST_ZERO, "weight_decay": LEAST_ZERO},
    "*Adam*": {"lr": LEAST_ZERO, "weight_decay": LEAST_ZERO},
}


def bounds_of(name: str, table: Bounds) -> Iterator[tuple[str, Bound]]:
    """Return parameter and bound of the class called ``name``, by every pattern of ``table`` that it fits."""
    for pattern, bounds in table.items():
        if fits(name, pattern):
            yield from bounds.items()


def fits(name: str, pattern: str) -> bool:
    """Return whether ``name`` is ``pattern``, or what a pattern with ``*`` stands for."""
    return name == pattern or ("*" in pattern and fnmatchcase(name, pattern))


def unquoted(value: Any) -> str:
    """Return the hint for a number that was written as a text; empty for anything else."""
    text = value.strip() if isinstance(value, str) else ""
    return f"write {text} without quotes" if text.lstrip("-").replace(".", "", 1).isdigit() else ""
