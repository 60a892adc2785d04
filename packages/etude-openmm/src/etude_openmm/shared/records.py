"""Reads the record files of mmcv 1.x (``*.log.json``) and MMEngine (``vis_data/scalars.json``) for Étude's reports."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from etude.report.formats import Normalise, Point, RecordFormat, points
from etude.report.lines import number

_TIMESTAMP = re.compile(r"\d{8}[-_]\d{6}(-\d+)?")


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
        yield from points(row, base + inside, mode, ("mode", "epoch", "iter"))

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
        yield from points(row, last, "train" if train else "val", ("iter", "step", "epoch"))

    return rows


def _newest_log(folder: Path) -> Path | None:
    logs = sorted(folder.glob("*.log.json"))
    return logs[-1] if logs else None


def _newest_scalars(folder: Path) -> Path | None:
    scalars = sorted(folder.glob("*/vis_data/scalars.json")) or sorted(folder.glob("vis_data/scalars.json"))
    return scalars[-1] if scalars else None


def _has_scalars(folder: str, names: Collection[str]) -> bool:
    runs = [name for name in names if name == "vis_data" or _TIMESTAMP.match(name)]
    parts = ((name,) if name == "vis_data" else (name, "vis_data") for name in runs)
    return any(os.path.isfile(os.path.join(folder, *part, "scalars.json")) for part in parts)


MMCV1 = RecordFormat(
    dialect="mmcv1",
    find=_newest_log,
    is_run=lambda _, names: any(name.endswith(".log.json") for name in names),
    reader=_mmcv1,
)
MMENGINE = RecordFormat(dialect="mmengine", find=_newest_scalars, is_run=_has_scalars, reader=_mmengine)
