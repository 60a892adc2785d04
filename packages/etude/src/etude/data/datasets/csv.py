"""Reads a table from a CSV file: numbers as features, one column as the target."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.data.datasets.missing import cannot_be_read
from etude.data.datasets.tensors import TensorData
from etude.errors import ConfigError, DataError
from etude.errors.spelling import suggest


class Csv(TensorData):
    """Rows of a CSV file whose first line names the columns.

    A sample is the ``columns`` (all but the target, if none are named) as float32, and the ``target``: int64 if all its
    values are whole numbers, float32 if all are numbers, else the number of its name in ``classes`` (sorted names, if
    none are given). With ``predicts`` a sample is its columns alone, and the target's column may be missing.

    In a config, the columns and classes of the training data are those of validation and test data too.
    """

    def __init__(
        self,
        file: str,
        target: str = "label",
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        predicts: bool = False,
        classes: Sequence[str] | None = None,
    ) -> None:
        header, rows = _read(file, delimiter)
        self.columns = [name for name in header if name != target] if columns is None else list(columns)
        for name in (*([] if predicts else [target]), *self.columns):
            if name not in header:
                raise ConfigError(f"{file}:1: no column is called {name!r}", hint=suggest(name, header))
        self._file, self._numbers = file, [line for line, _ in rows]
        places = [header.index(name) for name in self.columns]
        features = [[_number(row[place], file, line, header[place]) for place in places] for line, row in rows]
        values = torch.tensor(features, dtype=torch.float32).view(len(rows), len(places))
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
        return {"columns": self.columns} | ({"classes": self.classes} if self.classes else {})


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


def _number(text: str, file: str, line: int, column: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{file}:{line}: {text!r} in column {column!r} is not a number") from None


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
