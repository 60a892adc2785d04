"""The checkpoints (``toy_12.pth``) and records (``toy.log``, a JSON object per line) of the Toy engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from etude.dialect_api import Layout, RecordFormat, record_points


def _reader() -> Any:
    def rows(row: Mapping[str, Any]) -> Iterator[tuple[float, str, float]]:
        yield from record_points(row, float(row["stirred"]), "train", ("stirred",))

    return rows


def _find(folder: Path) -> Path | None:
    return next(iter(folder.glob("toy.log")), None)


LAYOUT = Layout(
    name="toy",
    holds=lambda state: "dish" in state,
    steps=(("", "stirred", 0),),
    weights="dish",
    optimizer="spoon",
    arrange=lambda weights, meta, optimizer: {"dish": dict(weights), "stirred": meta["iter"], "spoon": optimizer},
)
RECORDS = RecordFormat(
    dialect="toy", find=_find, is_run=lambda _, names: "toy.log" in names, reader=_reader, step_key="stirred"
)
