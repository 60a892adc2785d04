"""Writes records as a table that any spreadsheet opens."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.errors import ConfigError
from etude.events.record import Record

_HEAD = ["step", "epoch", "split"]


class Csv:
    """``metrics.csv``: a row per record, a column per value. A new value adds a column at the end."""

    def __init__(self, folder: str | Path, name: str = "metrics.csv") -> None:
        if Path(name).name != name:
            raise ConfigError(f"csv: {name!r} is not a file name")
        self.path = Path(folder) / name
        rows = _read(self.path)
        self.columns, self._rows = (rows[0], len(rows) - 1) if rows else (list(_HEAD), 0)

    def write(self, record: Record) -> None:
        if record.is_media_alone:
            return
        new = [name for name in record.values if name not in self.columns]
        if new or not self.path.exists():
            self.columns += new
            self._rewrite()
        row = {"step": record.step, "epoch": record.epoch, "split": record.split, **record.values}
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([row.get(column, "") for column in self.columns])
        self._rows += 1

    def close(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self._rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop the rows that were written after the checkpoint."""
        self._rows = min(int(state["rows"]), self._rows)
        if self.path.exists():
            self._rewrite()

    def _rewrite(self) -> None:
        """Rewrite all rows with the current columns; the file is replaced as a whole."""
        rows = _read(self.path)[1 : self._rows + 1]
        unfinished = self.path.with_name(f".{self.path.name}.part")
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(row + [""] * (len(self.columns) - len(row)) for row in rows)
        os.replace(unfinished, self.path)


def _read(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
