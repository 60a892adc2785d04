"""Computes mean and deviation of results over runs that differ by seed or fold only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from etude.errors import printable
from etude.report.runs import RunInfo

#: Keys of a plan that differ among repetitions of one run.
REPEATED = ("train.seed", "--seed", "data.train.dataset.fold", "data.val.dataset.fold", "folder", "name")


def groups_of(runs: Sequence[RunInfo]) -> list[list[RunInfo]]:
    """Return the runs that differ by seed or fold only, group by group, in their order."""
    found: dict[str, list[RunInfo]] = {}
    for run in runs:
        key = repr(sorted((key, repr(value)) for key, value in run.plan.items() if key not in REPEATED))
        found.setdefault(key if run.plan else str(run.path), []).append(run)
    return list(found.values())


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the deviation of a sample (divided by n - 1); that of one value is 0.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, math.sqrt(spread)


def mean_table(runs: Sequence[RunInfo]) -> list[str]:
    """Return a line for every result of every group: mean ± deviation of the last and of the best value."""
    rows = [("runs", "result", "last", "best")]
    for group in groups_of(runs):
        title = printable(group[0].name) + (f" and {len(group) - 1} more" if len(group) > 1 else "")
        for name in _results(group):
            last = [float(run.last[name]) for run in group if name in run.last]
            best = [run.best[name][0] for run in group if name in run.best]
            rows.append((title, printable(name), _shown(last, len(group)), _shown(best, len(group))))
            title = ""
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _results(group: Sequence[RunInfo]) -> list[str]:
    """Return the results of evaluations that the runs have, or those of training if nothing was evaluated."""
    names = list(dict.fromkeys(name for run in group for name in run.best))
    return [name for name in names if not name.startswith("train/")] or names


def _shown(values: Sequence[Any], count: int) -> str:
    if not values:
        return "–"
    mean, deviation = mean_and_deviation(values)
    part = f" ({len(values)} of {count})" if len(values) < count else ""
    return (f"{mean:.4g} ± {deviation:.2g}" if len(values) > 1 else f"{mean:.4g}") + part
