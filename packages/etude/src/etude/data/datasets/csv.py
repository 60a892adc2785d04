"""Reads a table from a CSV file: numbers as features, one column as the target."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.data.datasets.columns import Columns
from etude.data.datasets.missing import cannot_be_read
from etude.data.datasets.tensors import TensorData
from etude.errors import ConfigError, DataError
from etude.errors.spelling import suggest


class Csv(TensorData):
    """Rows of a CSV file whose first line names the columns.

    A sample is the ``columns`` (all but the target, if none are named) as float32, and the ``target``: int64 if all its
    values are whole numbers, float32 if all are numbers, else the number of its name in ``classes`` (sorted names, if
    none are given). With ``predicts`` a sample is its columns alone, and the target's column may be missing.

    ``categories`` are columns of names: each becomes a column of 0 and 1 per name. ``scale`` is ``standard`` (mean 0,
    deviation 1) or ``minmax`` (0 to 1), for the other columns. ``missing`` fills empty cells with the ``mean``, the
    ``median`` or ``zero``.

    In a config, the columns and classes of the training data are those of validation and test data too, as is what
    was learnt from it for categories, scales and empty cells (``fitted``).
    """

    def __init__(
        self,
        file: str,
        target: str = "label",
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        predicts: bool = False,
        classes: Sequence[str] | None = None,
        categories: Sequence[str] = (),
        scale: str | None = None,
        missing: str | None = None,
        fitted: Mapping[str, Any] | None = None,
    ) -> None:
        header, rows = _read(file, delimiter)
        self.columns = [name for name in header if name != target] if columns is None else list(columns)
        for name in (*([] if predicts else [target]), *self.columns):
            if name not in header:
                raise ConfigError(f"{file}:1: no column is called {name!r}", hint=suggest(name, header))
        self._file, self._numbers = file, [line for line, _ in rows]
        places = [header.index(name) for name in self.columns]
        self._cells = [[row[place] for place in places] for _, row in rows]
        self._table = Columns(self.columns, categories=categories, scale=scale, missing=missing, fitted=fitted)
        if fitted is None and rows:
            self._table.fit(self._cells, [self.origin(index) for index in range(len(rows))])
        values = self._values()
        self.classes = None if classes is None else list(classes)
        if predicts:
            super().__init__(values)
            return
        wanted = [row[header.index(target)] for _, row in rows]
        if self.classes is not None:
            require_classes(wanted, self.classes, f"{file}: column {target!r}")
        self.classes, targets = _targets(wanted, self.classes)
        super().__init__(values, targets)

    def origin(self, index: int) -> str:
        """Return file and line of a sample."""
        return f"{self._file}:{self._numbers[index]}"

    @property
    def shared(self) -> dict[str, Any]:
        """Return what other data of the same run has to agree with."""
        table = self._table
        asked = {"categories": sorted(table.categories), "scale": table.scale, "missing": table.missing}
        own: dict[str, Any] = {"columns": self.columns}
        own |= {key: value for key, value in asked.items() if value}
        own |= {"fitted": table.fitted} if len(own) > 1 else {}
        return own | ({"classes": self.classes} if self.classes else {})

    def fit(self, indices: Sequence[int]) -> None:
        """Learn categories, scales and fillings from some rows alone: those of a training fold."""
        self._table.fit([self._cells[index] for index in indices], [self.origin(index) for index in indices])
        self.tensors = (self._values(), *self.tensors[1:])

    def _values(self) -> Tensor:
        rows = [self._table.row(cells, self.origin(index)) for index, cells in enumerate(self._cells)]
        return torch.tensor(rows, dtype=torch.float32).view(len(rows), -1 if rows else len(self.columns))


def require_classes(values: Iterable[str], classes: Sequence[str], where: str) -> None:
    """Refuse a class that the training data does not have: the model has no number for it."""
    unknown = sorted(set(values) - set(classes))
    if unknown:
        raise ConfigError(
            f"{where}: {unknown[0]!r} is not a class of the training data", hint=suggest(unknown[0], classes)
        )


def _read(file: str, delimiter: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with Path(file).expanduser().open(newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream, delimiter=delimiter)
            header = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise cannot_be_read("Csv", file, error) from error
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{file}:{line}: {len(row)} values for {len(header)} columns")
    return header, rows


def _targets(values: Sequence[str], classes: list[str] | None) -> tuple[list[str] | None, Tensor]:
    if classes is not None:
        return classes, torch.tensor([classes.index(value) for value in values])
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        classes = sorted(set(values))
        return classes, torch.tensor([classes.index(value) for value in values])
    if all(number.is_integer() for number in numbers):
        return None, torch.tensor([int(number) for number in numbers])
    return None, torch.tensor(numbers, dtype=torch.float32)
