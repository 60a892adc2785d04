"""Draws curves as text for a terminal, and as PNG or SVG files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from etude.errors import UserError, optional, printable

Curve = Sequence[tuple[float, float]]
#: As in ``charts.js``.
COLOURS = (
    "#4c78e0", "#f0883e", "#2fa36b", "#d9527a", "#9a6fe0", "#1ba7b8", "#c9a01c", "#8d6e5a", "#5f7d95", "#b5489b",
)  # fmt: skip
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def text_plot(curve: Curve, *, width: int = 64, height: int = 8, log: bool = False) -> list[str]:
    """Return a curve in braille dots, with its range on the left; with ``log`` on a logarithmic scale.

    Points that are not finite leave gaps, and with ``log`` those that are not positive.

    >>> print("\\n".join(text_plot([(0, 0.0), (1, 1.0)], width=4, height=1)))
           1 ┤⣀⠤⠒⠉
    """
    curve = [(x, _scaled(y, log)) for x, y in curve if math.isfinite(x)]
    finite = [y for _, y in curve if y == y]
    if not finite:
        return []
    low, high = min(finite), max(finite)
    cells = [[0] * width for _ in range(height)]
    before = None
    for column, (ends, joined) in enumerate(_columns(curve, 2 * width)):
        if ends is None:
            before = None
            continue
        before = before if joined else None
        shares = [0.5 if high == low else (level - low) / (high - low) for level in ends]
        lowest, highest = (round((1 - share) * (4 * height - 1)) for share in shares)
        for dot in _stroke(before, (highest, lowest)):
            cells[dot // 4][column // 2] |= _DOTS[dot % 4][column % 2]
        before = highest, lowest
    top, bottom = (f"{10**end if log else end:.4g}" for end in (high, low))
    labels = {0: top, height - 1: bottom} if height > 1 else {0: top}
    space = max(8, *map(len, labels.values()))
    return [
        f"{labels.get(index, ''):>{space}} ┤{''.join(chr(0x2800 + cell) for cell in row)}"
        for index, row in enumerate(cells)
    ]


def save_plot(curves: Mapping[str, Curve], path: str | Path, *, title: str = "") -> None:
    """Draw each curve into its own panel of a PNG, SVG or PDF file. PNG and PDF need matplotlib."""
    target = Path(path)
    if target.suffix.lower() != ".svg":
        save_panels({name: {"": curve} for name, curve in curves.items()}, target, title=title)
        return
    try:
        target.write_text(f'<?xml version="1.0" encoding="utf-8"?>\n{svg(curves, title)}', encoding="utf-8")
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}") from error


def save_panels(panels: Mapping[str, Mapping[str, Curve]], target: Path, *, title: str = "", log: bool = False) -> None:
    """Draw with matplotlib: a panel per name, in it a line per label. The ending of ``target`` sets the format."""
    if target.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise UserError(f"{target.name}: a picture ends in .png, .svg or .pdf")
    matplotlib = optional("matplotlib.figure", "plot", f"drawing {target.suffix}")
    columns = 3 if len(panels) % 3 == 0 else min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = matplotlib.Figure(figsize=(4.6 * columns, 3.1 * rows), layout="constrained")
    figure.suptitle(_plain(title))
    for index, (name, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, index)
        axes.set_prop_cycle(color=COLOURS)
        axes.spines[["top", "right"]].set_visible(False)
        for label, curve in lines.items():
            values = [y for _, y in curve]
            steps, dots = [x for x, _ in curve], alone(values)
            axes.plot(steps, values, label=_plain(label), marker="o", markersize=3, markevery=dots)
        axes.set_title(_plain(name), fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if log:
            axes.set_yscale("log")
        if len(lines) > 1 and index == 1:
            axes.legend(fontsize=8)
    try:
        figure.savefig(target, dpi=150)
    except OSError as error:
        raise UserError(f"{printable(str(target))} cannot be written: {error.strerror or error}") from error


def _plain(text: str) -> str:
    """Return a text that matplotlib shows as it is, and not as a formula."""
    return printable(text).replace("$", r"\$")


#: A panel's width and height, the space to its left, and that for its name above and its steps below.
_WIDTH, _HEIGHT, _LEFT, _AROUND = 400, 140, 76, 58
_COLOUR, _SOFT, _LINE = "#4c78e0", "#5b6472", "#dfe3e8"


def svg(curves: Mapping[str, Curve], title: str) -> str:
    """Return plain panels, two in a row, with a line, its name and its range each."""
    drawn = [(name, pieces) for name, curve in curves.items() if (pieces := _pieces(curve))]
    columns, head = min(2, len(drawn)) or 1, 30 if title else 4
    panels = [
        _panel(name, pieces, index % columns * (_LEFT + _WIDTH + 16), head + index // columns * (_HEIGHT + _AROUND))
        for index, (name, pieces) in enumerate(drawn)
    ]
    width, height = columns * (_LEFT + _WIDTH + 16), head + -(-len(drawn) // columns) * (_HEIGHT + _AROUND)
    named = f'<text x="{_LEFT}" y="20" font-size="15" font-weight="600">{escape(title)}</text>' if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="12" fill="#1c2330">'
        f'<rect width="100%" height="100%" rx="8" fill="white"/>{named}{"".join(panels)}</svg>\n'
    )


def _panel(name: str, pieces: list[list[tuple[float, float]]], x0: int, y0: int) -> str:
    left, top, bottom = x0 + _LEFT, y0 + 26, y0 + 26 + _HEIGHT
    xs, ys = [x for piece in pieces for x, _ in piece], [y for piece in pieces for _, y in piece]
    wide, low, high = (max(xs) - min(xs)) or 1.0, min(ys), max(ys)
    labels = [(high, top), (low, bottom)]
    if low == high:  # a constant is a line in the middle
        labels = [(low, (top + bottom) // 2)]
        low, high = low - 1.0, high + 1.0
    lines = [
        " ".join(
            f"{left + (x - min(xs)) / wide * _WIDTH:.1f},{top + (1 - (y - low) / (high - low)) * _HEIGHT:.1f}"
            for x, y in piece
        )
        for piece in pieces
    ]
    rules = "".join(
        f'<path d="M{left} {top + share * _HEIGHT:.0f}h{_WIDTH}" stroke="{_LINE}"/>' for share in (0, 0.5, 1)
    )
    return (
        f'<text x="{left}" y="{top - 9}" font-weight="600">{escape(name)}</text>{rules}'
        f'<g fill="{_SOFT}" font-size="11">'
        + "".join(f'<text x="{left - 7}" y="{y + 4}" text-anchor="end">{label:.4g}</text>' for label, y in labels)
        + f'<text x="{left}" y="{bottom + 16}">step {min(xs):.0f}</text>'
        f'<text x="{left + _WIDTH}" y="{bottom + 16}" text-anchor="end">{max(xs):.0f}</text></g>'
        + "".join(
            f'<polyline points="{line}" fill="none" stroke="{_COLOUR}" stroke-width="1.8" '
            'stroke-linejoin="round" stroke-linecap="round"/>'
            for line in lines
        )
    )


def alone(values: Sequence[float]) -> list[int]:
    """Return the places of finite values between two that are not: they have no line and need a dot."""
    finite = [False, *map(math.isfinite, values), False]
    return [at for at in range(len(values)) if finite[at + 1] and not finite[at] and not finite[at + 2]]


def _pieces(curve: Curve) -> list[list[tuple[float, float]]]:
    """Return the parts of a curve between points that are not finite; a single point is given twice, as a dot."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in curve:
        if math.isfinite(y):
            pieces[-1].append((x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece if len(piece) > 1 else piece * 2 for piece in pieces if piece]


def _stroke(before: tuple[int, int] | None, own: tuple[int, int]) -> range:
    """Return the dots of a column: its own, and those that join it to the column before."""
    top, bottom = own
    if before is not None:
        top, bottom = min(top, before[1] + 1), max(bottom, before[0] - 1)
    return range(top, bottom + 1)


def _scaled(value: float, log: bool) -> float:
    """Return where a value is drawn; NaN where it cannot be."""
    if log:
        return math.log10(value) if 0 < value < math.inf else math.nan
    return value if math.isfinite(value) else math.nan


def _columns(curve: Curve, count: int) -> list[tuple[tuple[float, float] | None, bool]]:
    """Return the least and the greatest value at ``count`` places: of the points there, or of the line between them.

    None is where a line would lead to or from NaN. The flag is False where a NaN lies before a column, so that the
    column is not joined to the one before.
    """
    first, last = curve[0][0], curve[-1][0]
    values: list[tuple[float, float] | None] = []
    joined = [True] * count
    index = 0
    for column in range(count):
        x = first + (last - first) * column / max(1, count - 1)
        while index + 2 < len(curve) and curve[index + 1][0] < x:
            index += 1
        level = _between(curve[index], curve[min(index + 1, len(curve) - 1)], x)
        values.append((level, level) if level == level else None)
    for x, y in curve:
        column = round((x - first) / (last - first) * (count - 1)) if last > first else 0
        column = min(max(column, 0), count - 1)
        if y != y:
            joined[column] = False
        else:
            low, high = values[column] or (y, y)
            values[column] = min(low, y), max(high, y)
    return list(zip(values, joined, strict=True))


def _between(one: tuple[float, float], two: tuple[float, float], x: float) -> float:
    if two[0] == one[0]:
        return two[1]
    share = min(1.0, max(0.0, (x - one[0]) / (two[0] - one[0])))
    return one[1] + (two[1] - one[1]) * share
