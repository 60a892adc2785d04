"""Turns the cells of a table into numbers: missing values are filled, texts become categories, numbers are scaled.

What it needs for that is learnt from the training data alone; validation data and predictions use the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from etude.errors import ConfigError, DataError
from etude.errors.spelling import suggest

SCALES = ("standard", "minmax")
FILLS = ("mean", "median", "zero")
#: Cells that stand for no value.
_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


class Columns:
    """How the cells of each column become numbers. ``fitted`` is what :meth:`fit` has learnt before, by column."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        categories: Sequence[str] = (),
        scale: str | None = None,
        missing: str | None = None,
        fitted: Mapping[str, Any] | None = None,
    ) -> None:
        for word, value, known in (("scale", scale, SCALES), ("missing", missing, FILLS)):
            if value is not None and value not in known:
                raise ConfigError(f"{word} is {value!r}", hint=suggest(value, known))
        for name in categories:
            if name not in names:
                raise ConfigError(f"categories: no column is called {name!r}", hint=suggest(name, names))
        self.names, self.categories, self.scale, self.missing = list(names), set(categories), scale, missing
        self.fitted: dict[str, Any] = dict(fitted or {})

    def fit(self, cells: Sequence[Sequence[Any]], places: Sequence[str]) -> None:
        """Learn categories, fillings and scales from the cells of each row; ``places`` says where the rows are."""
        for number, name in enumerate(self.names):
            column = [row[number] for row in cells]
            if name in self.categories:
                self.fitted[name] = {"categories": sorted({str(cell) for cell in column if not _is_empty(cell)})}
                continue
            pairs = zip(column, places, strict=True)
            numbers = [_number(cell, name, place) for cell, place in pairs if not _is_empty(cell)]
            if not numbers:
                raise DataError(f"{places[0]}: column {name!r} has no value")
            self.fitted[name] = {"fill": self._fill(numbers), **self._scale(numbers)}

    def row(self, cells: Sequence[Any], place: str) -> list[float]:
        """Return the numbers of a row."""
        numbers: list[float] = []
        for name, cell in zip(self.names, cells, strict=True):
            learnt = self.fitted[name]
            if "categories" in learnt:
                numbers += self._one_hot(cell, name, learnt["categories"], place)
            else:
                value = learnt["fill"] if self._is_filled(cell, name, place) else _number(cell, name, place)
                numbers.append((value - learnt.get("shift", 0.0)) / learnt.get("width", 1.0))
        return numbers

    def _fill(self, numbers: Sequence[float]) -> float:
        if self.missing in (None, "zero"):
            return 0.0
        return statistics.fmean(numbers) if self.missing == "mean" else statistics.median(numbers)

    def _scale(self, numbers: Sequence[float]) -> dict[str, float]:
        if self.scale is None:
            return {}
        if self.scale == "minmax":
            return {"shift": min(numbers), "width": (max(numbers) - min(numbers)) or 1.0}
        return {"shift": statistics.fmean(numbers), "width": statistics.pstdev(numbers) or 1.0}

    def _one_hot(self, cell: Any, name: str, known: Sequence[str], place: str) -> list[float]:
        if not self._is_filled(cell, name, place) and str(cell) not in known and self.missing is None:
            text = f"{place}: {cell!r} in column {name!r} is no category of the training data"
            raise DataError(f"{text}; with `missing: zero` it is none of them")
        return [float(str(cell) == category) for category in known]

    def _is_filled(self, cell: Any, name: str, place: str) -> bool:
        if not _is_empty(cell):
            return False
        if self.missing is None:
            raise DataError(f"{place}: no value in column {name!r}; write missing: mean, median or zero")
        return True


def _is_empty(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in _EMPTY)


def _number(cell: Any, column: str, place: str) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        hint = f"; write categories: [{column}] if these are names"
        raise DataError(f"{place}: {cell!r} in column {column!r} is not a number{hint}") from None
