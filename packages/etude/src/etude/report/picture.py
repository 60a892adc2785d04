"""Draws the curves of runs into a PNG, SVG or PDF file, for a paper or a README."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from etude.errors import UserError
from etude.preview.draw import Curve, save_panels
from etude.report.downsample import thin
from etude.report.records import Records
from etude.report.runs import name_of
from etude.report.text import chosen


def write_picture(folders: Sequence[Path], target: Path, *, metrics: Sequence[str] = (), log: bool = False) -> None:
    """Draw a panel per metric with a line per run. The ending of ``target`` sets the format."""
    panels: dict[str, dict[str, Curve]] = {}
    for folder in folders:
        records = Records(folder)
        records.update()
        for name in chosen(records, metrics):
            points = thin(records.curves[name], 2000)
            values = [math.nan if y is None else y for y in points["y"]]
            panels.setdefault(name, {})[name_of(folder)] = list(zip(points["x"], values, strict=True))
    if not panels:
        raise UserError("the runs have recorded nothing to draw yet")
    save_panels(panels, target, log=log)
