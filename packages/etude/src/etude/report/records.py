"""Turns the record files of Étude and of other systems into curves with one set of names."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.config.run_files import is_inside
from etude.report import formats
from etude.report.formats import Normalise, Point, RecordFormat
from etude.report.lines import WHOLE, Lines, number

#: Values of the machine, not of the training: they come after the others wherever curves are listed.
CLOCK = ("time/", "memory/", "throughput/", "system/")


@dataclass
class Curve:
    """One value over the steps of a run."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: float, value: float) -> None:
        self.steps.append(step)
        self.values.append(value)


_LARGEST = 2.0**62
#: Files of Étude whose rows say at which step of the run they were written.
_STEPS = {"metrics.jsonl": "step", "timing.jsonl": "step"}


class Records:
    """Every curve of a run folder: ``train/loss``, ``val/accuracy``, ``time/step``.

    :meth:`update` reads what is new and says whether there was anything. ``whole`` is the size in bytes up to which
    files are read completely.
    """

    def __init__(self, folder: Path, *, whole: int = WHOLE) -> None:
        self.folder, self.whole = folder, whole
        self.curves: dict[str, Curve] = {}
        self.version = 0
        self._sources: list[_Source] = []
        self.began: float | None = None
        self.ended: float | None = None
        #: Epoch and clock by step, for curves over them.
        self.epochs, self.clock = Curve(), Curve()

    def update(self) -> bool:
        self._open()
        points = 0
        for source in self._sources:
            added = list(source.read())
            if source.lines.restarted:
                self._sources, self.curves = [], {}
                self.epochs, self.clock = Curve(), Curve()
                self.version += 1
                self.update()
                return True
            self._add(added)
            self._note_times(source)
            source.move(self.epochs, self.clock)
            points += len(added)
        self.version += points > 0
        return points > 0

    @property
    def results(self) -> dict[str, Curve]:
        """The curves of results on validation data, by their names without the split."""
        found, read = format_of(self.folder), {source.lines.path for source in self._sources}
        head = found[0].validation if found is not None and found[1] in read else "val/"
        return {name.removeprefix(head): curve for name, curve in self.curves.items() if name.startswith(head)}

    @property
    def sampled(self) -> bool:
        return any(source.lines.sampled for source in self._sources)

    @property
    def bad_lines(self) -> int:
        return sum(source.lines.bad for source in self._sources)

    @property
    def step(self) -> int:
        """The last step that anything was recorded at."""
        return int(max((curve.steps[-1] for curve in self.curves.values() if curve.steps), default=0))

    def between(self, low: float, high: float) -> Records:
        """Return the records from step ``low`` to ``high``, read from large files whole if that part is not large."""
        found = Records(self.folder, whole=self.whole)
        found._open()
        for source in found._sources:
            if key := source.step_key:
                source.lines.seek(key, low, high)
            found._add(list(source.read()))
        return found

    def _open(self) -> None:
        known = {source.lines.path for source in self._sources}
        for path, normalise, key in record_files(self.folder):
            if path not in known:
                self._sources.append(_Source(Lines(path, whole=self.whole), normalise(), key))

    def _add(self, points: list[Point]) -> None:
        for step, name, value in points:
            if not -_LARGEST < step < _LARGEST:  # of no run: NaN, an infinity
                continue
            curve = self.curves.get(name)
            if curve is None:
                curve = self.curves[name] = Curve()
            curve.add(step, value)

    def _note_times(self, source: _Source) -> None:
        if source.first is not None:
            self.began = source.first if self.began is None else min(self.began, source.first)
        if source.last is not None:
            self.ended = source.last if self.ended is None else max(self.ended, source.last)


@dataclass
class _Source:
    lines: Lines
    normalise: Normalise
    step_key: str
    first: float | None = None
    last: float | None = None
    #: Steps with their epochs and times that :meth:`read` has met.
    places: list[tuple[float, float | None, float | None]] = field(default_factory=list)

    def read(self) -> Iterator[Point]:
        for row in self.lines.read():
            at = row.get("time")
            if (step := number(row.get(self.step_key))) is not None:
                self.places.append((step, number(row.get("epoch")), number(at)))
            # Other systems keep the seconds of a step under this name.
            if isinstance(at, float) and 1e9 < at < 1e11:
                self.first, self.last = at if self.first is None else self.first, at
            yield from self.normalise(row)

    def move(self, epochs: Curve, clock: Curve) -> None:
        """Add the places that were read to the curves of epoch and clock: times of day, in order of the steps."""
        for step, epoch, at in self.places:
            if epoch is not None and (not epochs.steps or step > epochs.steps[-1]):
                epochs.add(step, epoch)
            if at is not None and 1e9 < at < 1e11 and (not clock.steps or step > clock.steps[-1]):
                clock.add(step, at)
        self.places = []


def record_files(folder: Path) -> list[tuple[Path, Callable[[], Normalise], str]]:
    """Return the files of a run folder that hold records, each with a reader of its rows and their key of the step."""
    here = os.fspath(folder)
    own = [
        (Path(path), _native, key)
        for name, key in _STEPS.items()
        if os.path.isfile(path := os.path.join(here, name)) and is_inside(here, path)
    ]
    found = format_of(folder) if not own else None
    return own if found is None else [(found[1], found[0].reader, found[0].step_key)]


def format_of(folder: Path) -> tuple[RecordFormat, Path] | None:
    """Return the format of another system's records in a run folder, and their file; None if there are none."""
    for one in formats.known():
        file = one.find(folder)
        if file is not None and is_inside(folder, file):
            return one, file
    return None


def _native() -> Normalise:
    def rows(row: Mapping[str, Any]) -> Iterator[Point]:
        step, split = number(row.get("step")), row.get("split", "train")
        if step is None or not isinstance(split, str):
            return
        for name, given in row.items():
            if name not in ("step", "epoch", "split", "time") and (value := number(given)) is not None:
                yield step, name if name.startswith(CLOCK) else f"{split}/{name}", value

    return rows
