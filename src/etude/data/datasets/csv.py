"""A table in a CSV file: numbers as features, one column as the target."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from etude.data.datasets.tensors import TensorData
from etude.errors import ConfigError, DataError, suggest


class Csv(TensorData):
    """Rows of a CSV file whose first line names the columns.

    A sample is the ``columns`` (all but the target, if none are named) as float32, and the ``target``: int64 if all its
    values are whole numbers, float32 if all are numbers, else the number of its name in ``self.classes``. With
    ``predicts`` a sample is its columns alone, and the target's column may be missing.
    """

    def __init__(
        self,
        file: str,
        target: str = "label",
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        predicts: bool = False,
    ) -> None:
        header, rows = _read(file, delimiter)
        self.columns = [name for name in header if name != target] if columns is None else list(columns)
        for name in (*([] if predicts else [target]), *self.columns):
            if name not in header:
                raise ConfigError(f"{file}:1: no column is called {name!r}", hint=suggest(name, header))
        places = [header.index(name) for name in self.columns]
        features = [[_number(row[place], file, line, header[place]) for place in places] for line, row in rows]
        values = torch.tensor(features, dtype=torch.float32).view(len(rows), len(places))
        if predicts:
            super().__init__(values)
            return
        self.classes, targets = _targets([row[header.index(target)] for _, row in rows])
        super().__init__(values, targets)


def columns_of(file: str, target: str = "label", delimiter: str = ",") -> list[str]:
    """Return the columns of a file but the target's, in their order."""
    return [name for name in _read(file, delimiter)[0] if name != target]


def _read(file: str, delimiter: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with Path(file).expanduser().open(newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream, delimiter=delimiter)
            header = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"Csv: {file} cannot be read: {error}") from error
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{file}:{line}: {len(row)} values for {len(header)} columns")
    return header, rows


def _number(text: str, file: str, line: int, column: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{file}:{line}: {text!r} in column {column!r} is not a number") from None


def _targets(values: Sequence[str]) -> tuple[list[str] | None, Tensor]:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        classes = sorted(set(values))
        return classes, torch.tensor([classes.index(value) for value in values])
    if all(number.is_integer() for number in numbers):
        return None, torch.tensor([int(number) for number in numbers])
    return None, torch.tensor(numbers, dtype=torch.float32)
