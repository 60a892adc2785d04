"""Computes metrics over the samples of all ranks: each sample counts once, with the result of a single process.

There are three kinds. A metric that names its sums (``sums = ("_right", "_count")``) has these added up over ranks at
the end. A metric of torchmetrics gathers its own states. Any other sees the outputs and targets of all ranks, in rank
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch

from etude.dist import group


def parts(metrics: Mapping[str, Any], output: Any, target: Any, *, lent: bool) -> dict[str, list[tuple[Any, Any]]]:
    """Return the (output, target) pairs of this batch that each metric has to see; padding batches do not count."""
    own: list[tuple[Any, Any]] = [] if lent else [(output, target)]
    everyone = own
    if group.is_joined() and not all(map(reduces_itself, metrics.values())):
        pair = None if lent else (_on_cpu(output), _on_cpu(target))
        everyone = [pair for pair in group.gather(pair) if pair is not None]
    return {name: own if reduces_itself(metric) else everyone for name, metric in metrics.items()}


def compute(metric: Any) -> Any:
    """Compute ``metric`` for the samples of all ranks."""
    names = getattr(metric, "sums", ())
    if group.is_joined() and names:
        for name, value in zip(names, _added([attrgetter(name)(metric) for name in names]), strict=True):
            owner, _, last = name.rpartition(".")
            setattr(attrgetter(owner)(metric) if owner else metric, last, value)
    return metric.compute()


def reduces_itself(metric: Any) -> bool:
    """Return whether its states are put together at the end: sums, and torchmetrics' own way."""
    return bool(getattr(metric, "sums", ())) or (hasattr(metric, "_reductions") and hasattr(metric, "sync"))


def _added(values: list[Any]) -> list[Any]:
    """Return sums over ranks, in rank order; a rank without samples has None."""
    columns = zip(*group.gather([_on_cpu(value) for value in values]), strict=True)
    return [_sum([value for value in column if value is not None]) for column in columns]


def _sum(values: list[Any]) -> Any:
    if not values:
        return None
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    return type(value)(map(_on_cpu, value)) if type(value) in (list, tuple) else value
