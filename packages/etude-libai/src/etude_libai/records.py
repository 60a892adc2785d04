"""Reads the record file of LiBai and detectron2, ``metrics.json``, for Étude's reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from etude.report.formats import Normalise, Point, RecordFormat, points
from etude.report.lines import number


def _reader() -> Normalise:
    def rows(row: Mapping[str, Any]) -> Iterator[Point]:
        step = number(row.get("iteration"))
        if step is not None:
            yield from points(row, step + 1, "train", ("iteration",))

    return rows


def _find(folder: Path) -> Path | None:
    file = folder / "metrics.json"
    return file if file.is_file() else None


LIBAI = RecordFormat(
    dialect="libai",
    find=_find,
    is_run=lambda _, names: "metrics.json" in names,
    reader=_reader,
    validation="train/",  # a row holds everything of its iteration
    step_key="iteration",
)
