"""Turns the record files of Étude and of other systems into curves with one set of names."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.report.lines import WHOLE, Lines, number

#: Values of the machine, not of the training: they come after the others wherever curves are listed.
CLOCK = ("time/", "memory/", "throughput/", "system/")
#: Names that other systems give to such values.
_CLOCKED = {
    "time": "time/step", "data_time": "time/data", "memory": "memory/megabytes",
    "eta_seconds": "time/eta", "rank_data_time": "time/data/rank",
}  # fmt: skip


@dataclass
class Curve:
    """One value over the steps of a run."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.steps)


Point = tuple[float, str, float]
#: Files whose rows say at which step of the run they were written.
_STEPS = {"metrics.jsonl": "step", "timing.jsonl": "step", "metrics.json": "iteration"}


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

    def update(self) -> bool:
        self._open()
        points = 0
        for source in self._sources:
            added = list(source.read())
            if source.lines.restarted:
                self._sources, self.curves = [], {}
                self.version += 1
                self.update()
                return True
            self._add(added)
            self._note_times(source)
            points += len(added)
        self.version += points > 0
        return points > 0

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
            key = _STEPS.get(source.lines.path.name)
            if key is not None:
                source.lines.seek(key, low, high)
            found._add(list(source.read()))
        return found

    def _open(self) -> None:
        known = {source.lines.path for source in self._sources}
        for path, normalise in record_files(self.folder):
            if path not in known:
                self._sources.append(_Source(Lines(path, whole=self.whole), normalise()))

    def _add(self, points: list[Point]) -> None:
        for step, name, value in points:
            curve = self.curves.get(name)
            if curve is None:
                curve = self.curves[name] = Curve()
            curve.steps.append(step)
            curve.values.append(value)

    def _note_times(self, source: _Source) -> None:
        if source.first is not None:
            self.began = source.first if self.began is None else min(self.began, source.first)
        if source.last is not None:
            self.ended = source.last if self.ended is None else max(self.ended, source.last)


Normalise = Callable[[Mapping[str, Any]], Iterator[Point]]


@dataclass
class _Source:
    lines: Lines
    normalise: Normalise
    first: float | None = None
    last: float | None = None

    def read(self) -> Iterator[Point]:
        for row in self.lines.read():
            at = row.get("time")
            # Other systems keep the seconds of a step under this name.
            if isinstance(at, float) and at > 1e9:
                self.first, self.last = at if self.first is None else self.first, at
            yield from self.normalise(row)


def record_files(folder: Path) -> list[tuple[Path, Callable[[], Normalise]]]:
    """Return the files of a run folder that hold records, each with a reader of their rows."""
    here = os.fspath(folder)
    own = [
        (Path(path), _native)
        for path in (os.path.join(here, "metrics.jsonl"), os.path.join(here, "timing.jsonl"))
        if os.path.isfile(path)
    ]
    if own:
        return own
    logs = sorted(folder.glob("*.log.json"))
    if logs:
        return [(logs[-1], _mmcv1)]
    if (folder / "metrics.json").is_file():
        return [(folder / "metrics.json", _detectron)]
    scalars = sorted(folder.glob("*/vis_data/scalars.json")) or sorted(folder.glob("vis_data/scalars.json"))
    return [(scalars[-1], _mmengine)] if scalars else []


def _native() -> Normalise:
    def rows(row: Mapping[str, Any]) -> Iterator[Point]:
        step, split = number(row.get("step")), row.get("split", "train")
        if step is None or not isinstance(split, str):
            return
        for name, given in row.items():
            if name not in ("step", "epoch", "split", "time") and (value := number(given)) is not None:
                yield step, name if name.startswith(CLOCK) else f"{split}/{name}", value

    return rows


def _mmengine() -> Normalise:
    """Read rows of MMEngine. Those of training have ``iter``.

    A validation's ``step`` may count epochs, so it is placed after the last row.
    """
    last = 0.0

    def rows(row: Mapping[str, Any]) -> Iterator[Point]:
        nonlocal last
        train = "iter" in row
        last = (number(row.get("step")) or last) if train else last
        yield from _foreign(row, last, "train" if train else "val", ("iter", "step", "epoch"))

    return rows


def _mmcv1() -> Normalise:
    """Read rows of mmcv 1.x, which count iterations within an epoch.

    The longest epoch so far says how long the earlier ones were.
    """
    base = inside = epoch = 0.0

    def rows(row: Mapping[str, Any]) -> Iterator[Point]:
        nonlocal base, inside, epoch
        mode = row.get("mode")
        if not isinstance(mode, str):
            return
        if mode == "train":
            now = number(row.get("epoch")) or epoch
            iteration = number(row.get("iter")) or 0.0
            if now > epoch and iteration <= inside:
                base, inside = base + inside, 0.0
            epoch, inside = now, max(inside, iteration)
        yield from _foreign(row, base + inside, mode, ("mode", "epoch", "iter"))

    return rows


def _detectron() -> Normalise:
    def rows(row: Mapping[str, Any]) -> Iterator[Point]:
        step = number(row.get("iteration"))
        if step is not None:
            yield from _foreign(row, step + 1, "train", ("iteration",))

    return rows


def _foreign(row: Mapping[str, Any], step: float, split: str, heads: tuple[str, ...]) -> Iterator[Point]:
    for name, given in row.items():
        if name not in heads and (value := number(given)) is not None:
            yield step, _CLOCKED.get(name) or f"{split}/{name}", value
