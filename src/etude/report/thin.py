"""Thins curves for drawing: the least and the greatest value of each piece stay, so that spikes are seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from etude.report.records import Curve


def thin(curve: Curve, count: int, *, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Return at most about ``count`` points between the steps ``low`` and ``high``, as plain lists.

    Values that are not finite become None, which leaves a gap; ``strange`` is their number.
    """
    steps, values = np.frombuffer(curve.steps, dtype=np.float64), np.frombuffer(curve.values, dtype=np.float64)
    length = min(len(steps), len(values))
    steps, values = steps[:length].copy(), values[:length].copy()  # the arrays may grow while they are looked at
    if low is not None or high is not None:
        inside = (steps >= (-np.inf if low is None else low)) & (steps <= (np.inf if high is None else high))
        steps, values = steps[inside], values[inside]
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
