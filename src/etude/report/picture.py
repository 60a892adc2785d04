"""Draws the curves of runs into a PNG, SVG or PDF file, for a paper or a README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.errors import MissingExtra, UserError, printable
from etude.preview.draw import alone
from etude.report.downsample import thin
from etude.report.page import COLOURS
from etude.report.records import Records
from etude.report.runs import name_of
from etude.report.text import chosen


def write_picture(folders: Sequence[Path], target: Path, *, metrics: Sequence[str] = (), log: bool = False) -> None:
    """Draw a panel per metric with a line per run. The ending of ``target`` says which kind of file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing a picture") from None
    if target.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise UserError(f"{target.name}: a picture ends in .png, .svg or .pdf")
    runs = [Records(folder) for folder in folders]
    for records in runs:
        records.update()
    names = list(dict.fromkeys(name for records in runs for name in chosen(records, metrics)))
    if not names:
        raise UserError("the runs have recorded nothing to draw yet")
    columns = 3 if len(names) % 3 == 0 else min(2, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.1 * rows), layout="constrained")
    for index, name in enumerate(names, 1):
        axes = figure.add_subplot(rows, columns, index)
        axes.set_prop_cycle(color=COLOURS)
        axes.spines[["top", "right"]].set_visible(False)
        for records in runs:
            if name in records.curves:
                points = thin(records.curves[name], 2000)
                values = [float("nan") if y is None else y for y in points["y"]]
                label = printable(name_of(records.folder)).replace("$", r"\$")
                axes.plot(points["x"], values, label=label, marker="o", markersize=3, markevery=alone(values))
        axes.set_title(printable(name).replace("$", r"\$"), fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if log:
            axes.set_yscale("log")
        if len(runs) > 1 and index == 1:
            axes.legend(fontsize=8)
    try:
        figure.savefig(target, dpi=150)
    except OSError as error:
        raise UserError(f"{printable(str(target))} cannot be written: {error.strerror or error}") from error
