"""Maps steps of a run to epochs, seconds and samples, for curves over something other than steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.report.downsample import thin
from etude.report.lines import number
from etude.report.records import Curve, Records
from etude.report.runs import RunInfo

#: Points of an axis: a line between two of them is near enough.
_POINTS = 400

Axis = Mapping[str, Any]


def axes_of(records: Records, info: RunInfo) -> dict[str, Axis]:
    """Return points ``x`` (steps) and ``y`` for ``epoch``, ``time`` and ``samples``; what a run has not is left out.

    Time is in seconds since the run first began, pauses between two processes included.
    """
    found: dict[str, Axis] = {}
    epochs, total = number(info.plan.get("train.epochs")), info.total
    if epochs and total:
        found["epoch"] = {"x": [0, total], "y": [0, epochs]}
    elif len(set(records.epochs.values)) > 1:
        found["epoch"] = thin(records.epochs, _POINTS)
    if records.clock.steps and info.began is not None:
        passed = Curve()
        passed.add(0.0, 0.0)
        for step, at in zip(records.clock.steps, records.clock.values, strict=True):
            passed.add(step, max(0.0, at - info.began))
        found["time"] = thin(passed, _POINTS)
    if size := _samples(records):
        found["samples"] = {"x": [0, 1], "y": [0, size]}
    return found


def _samples(records: Records) -> float | None:
    """Return how many samples a step takes, from the throughputs of the same moment."""
    samples = records.curves.get("throughput/samples_per_second")
    steps = records.curves.get("throughput/steps_per_second")
    if not samples or not steps or not steps.values[-1]:
        return None
    return float(round(samples.values[-1] / steps.values[-1]))
