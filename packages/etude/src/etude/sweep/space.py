"""Parses the search space of a sweep from the command line.

.. code-block:: text

    optim.lr=1e-4..1e-2:log        a range, on a log scale
    model.depth=2..6               a range of whole numbers
    data.train.batch_size=32,64    choices
    train.epochs=3                 one value: the same in every trial
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from etude.config.formats.from_yaml import parse_value
from etude.errors import ConfigError
from etude.fast_dataclass import record

_RANGE = re.compile(r"(?P<low>[-+.\w]+?)\.\.(?P<high>[-+.\w]+?)(?::(?P<scale>\w+))?")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}


@record
class Choices:
    """One of several values, each as the override's text."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}={','.join(self.values)}"


@record
class Range:
    """A number from ``low`` to ``high``, both included; ``whole`` numbers where both ends are written as such."""

    key: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def __str__(self) -> str:
        return f"{self.key}={self.ends[0]}..{self.ends[1]}{':log' if self.log else ''}"


@record
class Space:
    """What a sweep draws, and the overrides that stay the same."""

    dimensions: tuple[Choices | Range, ...]
    fixed: tuple[str, ...] = ()

    @property
    def grid_size(self) -> int | None:
        """The number of combinations; None where a range has infinitely many."""
        if any(isinstance(one, Range) for one in self.dimensions):
            return None
        return math.prod(len(one.values) for one in self.dimensions if isinstance(one, Choices))


def parse_space(words: Iterable[str]) -> Space:
    """Read the overrides of a sweep.

    >>> space = parse_space(["optim.lr=1e-4..1e-2:log", "data.train.batch_size=32,64", "train.epochs=3"])
    >>> [str(one) for one in space.dimensions], space.fixed
    (['optim.lr=0.0001..0.01:log', 'data.train.batch_size=32,64'], ('train.epochs=3',))
    """
    dimensions: list[Choices | Range] = []
    fixed = []
    for word in words:
        key, equals, text = word.partition("=")
        match = _RANGE.fullmatch(text) if equals else None
        pieces = split_choices(text) if equals else []
        if match is not None:
            dimensions.append(_range(word, key, match))
        elif len(pieces) > 1:
            dimensions.append(Choices(key, tuple(pieces)))
        else:
            fixed.append(word)
    keys = [one.key for one in dimensions]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice} is given twice")
    if not dimensions:
        raise ConfigError(
            "there is nothing to search", hint="write optim.lr=1e-4..1e-2:log or data.train.batch_size=32,64"
        )
    return Space(tuple(dimensions), tuple(fixed))


def _range(word: str, key: str, match: re.Match[str]) -> Range:
    if "..." in word:
        raise ConfigError(f"{word}: a range has two dots", hint="write 1e-4..1e-2 or 2..6")
    ends = [parse_value(match[name], word) for name in ("low", "high")]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise ConfigError(f"{word}: a range goes from one number to another", hint="write 1e-4..1e-2 or 2..6")
    low, high = ends
    if not low < high:
        raise ConfigError(f"{word}: the range is empty", hint=f"write {key}={match['high']}..{match['low']}")
    if match["scale"] not in (None, "log"):
        raise ConfigError(f"{word}: no scale is called {match['scale']!r}", hint="write :log, or leave it out")
    if match["scale"] == "log" and low <= 0:
        raise ConfigError(f"{word}: a log scale needs numbers above zero")
    return Range(key, low, high, log=match["scale"] == "log", whole=all(isinstance(end, int) for end in ends))


def split_choices(text: str) -> list[str]:
    """Split at the commas that stand outside of brackets and quotes.

    >>> split_choices("[64, 10],[64, 32, 10]")
    ['[64, 10]', '[64, 32, 10]']
    """
    pieces, open_brackets, quote = [""], [], ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _BRACKETS:
            open_brackets.append(_BRACKETS[letter])
        elif open_brackets and letter == open_brackets[-1]:
            open_brackets.pop()
        elif letter == "," and not open_brackets:
            pieces.append("")
            continue
        pieces[-1] += letter
    return [piece.strip() for piece in pieces if piece.strip()]


def samples(space: Space) -> Iterator[list[str]]:
    """Yield overrides in which every choice and both ends of every range occur, to check a config with.

    >>> list(samples(parse_space(["a=1,2", "b=0..1", "c=x"])))
    [['c=x', 'a=1', 'b=0'], ['c=x', 'a=2', 'b=1']]
    """
    values = [one.values if isinstance(one, Choices) else one.ends for one in space.dimensions]
    for number in range(max(map(len, values))):
        drawn = [own[min(number, len(own) - 1)] for own in values]
        yield [*space.fixed, *(f"{one.key}={value}" for one, value in zip(space.dimensions, drawn, strict=True))]


def draw(space: Space, trial: Any) -> list[str]:
    """Ask an Optuna trial for a value of every dimension, as overrides."""
    words = []
    for one in space.dimensions:
        value: Any
        if isinstance(one, Choices):
            value = trial.suggest_categorical(one.key, one.values)
        elif one.whole:
            value = trial.suggest_int(one.key, int(one.low), int(one.high), log=one.log)
        else:
            value = trial.suggest_float(one.key, one.low, one.high, log=one.log)
        words.append(f"{one.key}={written(value)}")
    return words


def written(value: Any) -> str:
    """Write a drawn value with four digits: more would say nothing and be hard to read."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
