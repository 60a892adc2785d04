"""Parses amounts of training (``3ep``, ``500step``, ``2h``), and formats counts, sizes and times for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from etude.errors import ConfigError
from etude.fast_dataclass import record

_SUFFIXES = {
    "ep": "epoch", "epoch": "epoch", "epochs": "epoch",
    "step": "step", "steps": "step", "it": "step", "iter": "step", "iters": "step",
    "s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day",
}  # fmt: skip
_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


@record
class Amount:
    """A number of epochs or steps, or a time in seconds. ``str()`` gives back what a person would write."""

    value: float
    unit: str

    def __str__(self) -> str:
        number = int(self.value) if self.value == int(self.value) else self.value
        return f"{number}{ {'epoch': 'ep', 'step': 'step', 'second': 's'}[self.unit] }"

    def steps(self, steps_per_epoch: int | None) -> int:
        """Return this amount in steps; a part of an epoch is rounded to the nearest step."""
        if self.unit == "step":
            return int(self.value)
        if self.unit != "epoch":
            raise ConfigError(f"{self} is a time, where a number of steps or epochs is needed")
        if steps_per_epoch is None:
            raise ConfigError(f"{self} needs a dataset with a length; give steps instead")
        return round(self.value * steps_per_epoch)


#: Stands for an amount that could not be read, which a finding reports. It is less, equal or more than no other.
UNREAD = Amount(0.0, "")


def parse(text: str | int | float | Amount, *, default: str = "step", at: str = "") -> Amount:
    """``"3ep"``, ``"500step"``, ``"2h"`` or a bare number (of ``default`` units) as an :class:`Amount`."""
    if isinstance(text, Amount):
        return text
    if isinstance(text, bool):
        raise ConfigError(f"{text!r} is not an amount", at=at, hint="write 1ep, 500step or 2h")
    if isinstance(text, int | float):
        amount = Amount(float(text), default)
    else:
        match = _PATTERN.fullmatch(text)
        unit = _SUFFIXES.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise ConfigError(f"{text!r} is not an amount", at=at, hint="write 1ep, 500step or 2h")
        amount = Amount(float(match[1]) * _SECONDS.get(unit, 1.0), "second" if unit in _SECONDS else unit)
    if amount.value <= 0:
        raise ConfigError(f"{text!r} must be more than zero", at=at)
    if amount.unit == "step" and amount.value != int(amount.value):
        raise ConfigError(f"{text!r}: steps come whole", at=at)
    return amount


def parse_written(text: Any, *, unit: str = "step", at: str = "") -> Amount:
    """Parse what a person has written. A number without a unit is refused: 5 steps and 5 epochs are far apart.

    >>> parse_written("5ep")
    Amount(value=5.0, unit='epoch')
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        hint = f"write {text:g}s, 20min or 3h" if unit == "second" else f"write {text:g}step or {text:g}ep"
        raise ConfigError(f"{text:g} has no unit", at=at, hint=hint)
    if not isinstance(text, str | Amount):
        raise ConfigError(f"{text!r} is not an amount", at=at, hint="write 1ep, 500step or 2h")
    return parse(text, at=at)


def counted(number: int, noun: str) -> str:
    """Return ``1 step`` or ``3 steps``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def either(names: Sequence[str]) -> str:
    """Return ``.csv, .npz or .jsonl``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def human(size: float) -> str:
    """Return a size such as ``5.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def duration(seconds: float) -> str:
    """Format a time: ``1:02:03``, ``0:07``."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
