"""Downsamples curves for drawing: the minimum and maximum of each piece stay, so that spikes remain visible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from etude.report.records import Curve


def thin(
    curve: Curve, count: int, *, low: float = -math.inf, high: float = math.inf, around: Curve | None = None
) -> dict[str, Any]:
    """Return at most about ``count`` points between the steps ``low`` and ``high``, as plain lists.

    The nearest point on either side comes too, so that a line reaches the edges; it is taken from ``around`` if that
    is given, where ``curve`` holds the range alone. Values that are not finite become None, which leaves a gap;
    ``strange`` is their number.
    """
    steps, values = _arrays(curve)
    length = len(steps)
    if low > -math.inf or high < math.inf:
        inside = (steps >= low) & (steps <= high)
        outer, around_values = (steps, values) if around is None else _arrays(around)
        before, after = np.flatnonzero(outer < low)[-1:], np.flatnonzero(outer > high)[:1]
        steps = np.concatenate([outer[before], steps[inside], outer[after]])
        values = np.concatenate([around_values[before], values[inside], around_values[after]])
    strange = int((~np.isfinite(values)).sum())
    if len(steps) > count:
        keep = _extremes(values, count // 2)
        steps, values = steps[keep], values[keep]
    return {
        "x": steps.tolist(),
        "y": [value if np.isfinite(value) else None for value in values.tolist()],
        "strange": strange,
        "count": length,
    }


def _arrays(curve: Curve) -> tuple[Any, Any]:
    """Return copies of the steps and the values: the curve may grow while it is looked at."""
    steps, values = np.frombuffer(curve.steps, dtype=np.float64), np.frombuffer(curve.values, dtype=np.float64)
    # Another thread may be between the two appends of a point.
    length = min(len(steps), len(values))
    return steps[:length].copy(), values[:length].copy()


def _extremes(values: Any, pieces: int) -> Any:
    """Return the indices of the least and the greatest of each piece, and of one value that is not finite."""
    size = -(-len(values) // pieces)
    padded = np.full(size * pieces, np.nan)
    padded[: len(values)] = values
    table = padded.reshape(pieces, size)
    finite = np.isfinite(table)
    starts = np.arange(pieces) * size
    lowest = np.where(finite, table, np.inf).argmin(1) + starts
    highest = np.where(finite, table, -np.inf).argmax(1) + starts
    broken = np.flatnonzero(~finite.all(1))
    gaps = (~finite[broken]).argmax(1) + starts[broken]
    ends = np.array([0, len(values) - 1])
    keep = np.unique(np.concatenate([lowest, highest, gaps, ends]))
    return keep[keep < len(values)]
