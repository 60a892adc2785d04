"""Reads tables from JSON lines, Parquet and Arrow files: a row is a sample."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.data.datasets.csv import require_classes
from etude.data.datasets.missing import cannot_be_read, not_there
from etude.data.fingerprint import checksum_of_files
from etude.errors import ConfigError, DataError, MissingExtra
from etude.errors.spelling import suggest

ARROW = (".arrow", ".feather", ".ipc")


class Rows:
    """Turns a row of any table format into a sample.

    Without a ``target`` a sample is a mapping of the ``columns`` (all, if none are named): numbers and lists of numbers
    become tensors, texts stay texts. With a ``target`` it is the columns as one float32 tensor, and the target: int64
    for whole numbers, float32 for others, the number of the class for texts (``classes``, or all there are, sorted).
    ``transform`` gets the row as a mapping and gives the sample. With ``predicts`` the target may be missing, and a
    sample has none. In a config, validation and test data have the columns and classes of the training data.
    """

    def __init__(
        self,
        files: str | Sequence[str],
        names: Sequence[str],
        columns: Sequence[str] | None,
        target: str | None,
        transform: Callable[[Mapping[str, Any]], Any] | None,
        predicts: bool,
        classes: Sequence[str] | None,
    ) -> None:
        self.columns = [name for name in names if name != target] if columns is None else list(columns)
        for name in (*self.columns, *([target] if target and not predicts else [])):
            if name not in names:
                first = files if isinstance(files, str) else files[0]
                raise ConfigError(f"{first}: no column is called {name!r}", hint=suggest(name, names))
        self.target = None if predicts else target
        self.transform, self.deterministic = transform, transform is None
        self.classes = list(classes) if classes is not None else self._classes() if self.target else None

    @property
    def shared(self) -> dict[str, Any]:
        """Return what other data of the same run has to agree with."""
        return {"columns": self.columns} | ({"classes": self.classes} if self.classes else {})

    def row(self, index: int) -> Mapping[str, Any]:
        """Return the values of a row by column."""
        raise NotImplementedError

    def column(self, name: str) -> list[Any]:
        """Return all values of a column."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        row = self.row(index)
        if self.transform is not None:
            return self.transform(row)
        if self.target is None:
            return {name: _value(row[name]) for name in self.columns}
        features = torch.tensor([self._number(row, name, index) for name in self.columns], dtype=torch.float32)
        wanted = row[self.target]
        if self.classes is not None:
            require_classes([wanted], self.classes, f"row {index}")
        return features, torch.as_tensor(self.classes.index(wanted) if self.classes else wanted)

    def _number(self, row: Mapping[str, Any], name: str, index: int) -> float:
        try:
            return float(row[name])
        except (TypeError, ValueError):
            raise DataError(f"row {index}: {row[name]!r} in column {name!r} is not a number") from None

    def _classes(self) -> list[str] | None:
        values = self.column(str(self.target))
        return sorted(set(values)) if values and isinstance(values[0], str) else None


class Jsonl(Rows):
    """A JSON object per line: ``{"text": "…", "label": 1}``. See :class:`Rows` for what a sample is.

    Only the places of the lines are kept in memory; a line is read when it is asked for.
    """

    def __init__(
        self,
        files: str | Sequence[str],
        columns: Sequence[str] | None = None,
        target: str | None = None,
        transform: Callable[[Mapping[str, Any]], Any] | None = None,
        predicts: bool = False,
        classes: Sequence[str] | None = None,
    ) -> None:
        self.files = paths_of(files, "Jsonl")
        self._lines = [(file, start) for file in self.files for start in _line_starts(file)]
        if not self._lines:
            raise ConfigError(f"Jsonl: {self.files[0]} has no line")
        super().__init__(files, list(self.row(0)), columns, target, transform, predicts, classes)

    def __len__(self) -> int:
        return len(self._lines)

    def fingerprint(self) -> str:
        return checksum_of_files(self.files, root=self.files[0].parent)

    def origin(self, index: int) -> str:
        """Return file and line of a sample."""
        file, start = self._lines[index]
        return f"{file}:{sum(1 for other, begin in self._lines if other == file and begin <= start)}"

    def row(self, index: int) -> Mapping[str, Any]:
        file, start = self._lines[index]
        with file.open("rb") as stream:
            stream.seek(start)
            text = stream.readline()
        try:
            row = json.loads(text)
        except ValueError as error:
            raise DataError(f"{file}, row {index}: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{file}, row {index}: a JSON object is due, not {type(row).__name__}")
        return row

    def column(self, name: str) -> list[Any]:
        return [self.row(index).get(name) for index in range(len(self))]


class Parquet(Rows):
    """Files of Parquet or Arrow (``.arrow``, ``.feather``, ``.ipc``). Arrow files are mapped into memory, not read.

    See :class:`Rows` for what a sample is. Needs ``pip install 'etude[table]'``.
    """

    def __init__(
        self,
        files: str | Sequence[str],
        columns: Sequence[str] | None = None,
        target: str | None = None,
        transform: Callable[[Mapping[str, Any]], Any] | None = None,
        predicts: bool = False,
        classes: Sequence[str] | None = None,
    ) -> None:
        self.files = paths_of(files, "Parquet")
        self._wanted = None if columns is None else [*columns, *([target] if target and not predicts else [])]
        self._table: Any = None
        super().__init__(files, _arrow_names(self.files[0]), columns, target, transform, predicts, classes)

    @property
    def table(self) -> Any:
        """The table, opened in each process for itself."""
        if self._table is None:
            self._table = _read_arrow(self.files, self._wanted)
        return self._table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def fingerprint(self) -> str:
        return checksum_of_files(self.files, root=self.files[0].parent)

    def row(self, index: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.table.slice(int(index), 1).to_pylist()[0]
        return found

    def column(self, name: str) -> list[Any]:
        return list(self.table.column(name).to_pylist())


def paths_of(files: str | Sequence[str], who: str) -> list[Path]:
    """Return the files that a path, a pattern (``data/*.parquet``), a folder or a list of them names, in order."""
    found: list[Path] = []
    for one in [files] if isinstance(files, str) else files:
        path = Path(one).expanduser()
        matches = sorted(path.iterdir()) if path.is_dir() else [Path(name) for name in sorted(glob.glob(str(path)))]
        if not matches:
            raise not_there(who, one)
        found += [match for match in matches if match.is_file()]
    return found


def _arrow_names(file: Path) -> list[str]:
    """Return the columns of a file, without its rows."""
    pa, parquet = _pyarrow()
    try:
        if file.suffix in ARROW:
            return list(_open_arrow(file).schema.names)
        return list(parquet.read_schema(str(file)).names)
    except (OSError, pa.ArrowInvalid) as error:
        raise cannot_be_read("Parquet", str(file), error) from error


def _read_arrow(files: Sequence[Path], columns: list[str] | None) -> Any:
    pa, parquet = _pyarrow()
    tables = []
    for file in files:
        if file.suffix in ARROW:
            table = _open_arrow(file).read_all()
            tables.append(table if columns is None else table.select(columns))
        else:
            tables.append(parquet.read_table(str(file), columns=columns))
    return pa.concat_tables(tables)


def _open_arrow(file: Path) -> Any:
    """Open an Arrow file of either format: files (Feather too), or streams (Hugging Face's caches)."""
    pa, _ = _pyarrow()
    memory = pa.memory_map(str(file))
    try:
        return pa.ipc.open_file(memory)
    except pa.ArrowInvalid:
        memory.seek(0)
        return pa.ipc.open_stream(memory)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "table", "reading Parquet and Arrow files") from None
    return pyarrow, pyarrow.parquet


def _line_starts(file: Path) -> list[int]:
    starts, place = [], 0
    with file.open("rb") as stream:
        for line in stream:
            if line.strip():
                starts.append(place)
            place += len(line)
    return starts


def _value(value: Any) -> Any:
    """Convert numbers and lists of numbers to tensors; return everything else unchanged."""
    is_number = isinstance(value, int | float)
    if is_number or (isinstance(value, list) and value and isinstance(value[0], int | float | list)):
        tensor: Tensor = torch.tensor(value)
        return tensor.float() if tensor.dtype == torch.float64 else tensor
    return value
