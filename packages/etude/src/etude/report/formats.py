"""Describes the record files of other systems, so that their runs can be listed and drawn. Guests bring these.

A guest's package lists its :class:`RecordFormat` objects in the entry point group ``etude.records``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from etude.fast_dataclass import record
from etude.inspection.entry_points import load_entry_points
from etude.report.lines import number

GROUP = "etude.records"
#: One value: its step, its name and itself.
Point = tuple[float, str, float]
#: A reader of the rows of one file. It may keep what it has seen of earlier rows.
Normalise = Callable[[Mapping[str, Any]], Iterator[Point]]
#: Names that other systems give to values of the machine.
_CLOCKED = {
    "time": "time/step", "data_time": "time/data", "memory": "memory/megabytes",
    "eta_seconds": "time/eta", "rank_data_time": "time/data/rank",
}  # fmt: skip


@record
class RecordFormat:
    """One system's record file: a JSON object per line."""

    #: The dialect of runs with such a file, if nothing else says so.
    dialect: str
    #: Return the file with the newest records in a run's folder; None if it has none of this system.
    find: Callable[[Path], Path | None]
    #: Return whether a folder with these names in it is a run of this system.
    is_run: Callable[[str, Collection[str]], bool]
    #: Return a reader of the rows of one file.
    reader: Callable[[], Normalise]
    #: How the names of results on validation data begin.
    validation: str = "val/"
    #: The key of rows with the step of the run, if they have one.
    step_key: str = ""


@cache
def known() -> tuple[RecordFormat, ...]:
    """Return the formats of all guests that are installed."""
    return tuple(load_entry_points(GROUP).values())


def points(row: Mapping[str, Any], step: float, split: str, heads: Collection[str]) -> Iterator[Point]:
    """Yield the values of a row at ``step``, under Étude's names; ``heads`` are keys that are no values."""
    for name, given in row.items():
        if name not in heads and (value := number(given)) is not None:
            yield step, _CLOCKED.get(name) or f"{split}/{name}", value
