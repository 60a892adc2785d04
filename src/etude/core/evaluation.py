"""One pass over data without learning: losses averaged over samples, and metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from etude.core.loop import evaluate
from etude.core.run import Run
from etude.core.update import Forward, named_losses
from etude.errors import UserCodeError
from etude.events.record import numbers_of


class Evaluation:
    """Collects on the device; numbers are read once, at the end.

    A metric is anything with ``update(output, target)``, ``compute()`` and ``reset()``, so torchmetrics' are too. What
    ``compute`` returns is recorded under the metric's name, or under the keys of a mapping.
    """

    def __init__(
        self,
        forward: Forward,
        metrics: Mapping[str, Any],
        *,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.forward, self.metrics, self.autocast = forward, dict(metrics), autocast
        self.begin()

    def begin(self) -> None:
        for metric in self.metrics.values():
            metric.reset()
        self._losses: dict[str, list[tuple[torch.Tensor, int]]] = {}

    def step(self, run: Run, batch: Any) -> dict[str, Any]:
        with self.autocast():
            losses, output, target = self._forward(batch)
        count = _count(target, batch)
        for name, value in losses.items():
            self._losses.setdefault(name, []).append((value.detach(), count))
        for metric in self.metrics.values():
            metric.update(output, target)
        return {"losses": losses, "output": output, "target": target}

    def end(self) -> dict[str, float]:
        values: dict[str, Any] = {}
        total = 0.0
        for name, pairs in self._losses.items():
            numbers = numbers_of([value for value, _ in pairs])
            weight = sum(count for _, count in pairs)
            mean = sum(n * count for n, (_, count) in zip(numbers, pairs, strict=True)) / weight
            total += mean
            if len(self._losses) > 1:
                values[f"loss/{name}"] = mean
        if self._losses:
            values["loss"] = total
        for name, metric in self.metrics.items():
            result = metric.compute()
            values |= result if isinstance(result, Mapping) else {name: result}
        return dict(zip(values, numbers_of(list(values.values())), strict=True))

    def losses(self, run: Run, loader: Iterable[Any]) -> dict[str, float]:
        """A validation epoch of a workflow: everything as in an evaluation, recorded at once."""
        values = evaluate(run, loader, self)
        run.events.write(values, step=run.done, epoch=run.epoch_of_record, split="val")
        return values

    def _forward(self, batch: Any) -> tuple[dict[str, Any], Any, Any]:
        if self.forward.losses:
            return self.forward(batch)
        output = self.forward.call(batch)
        try:
            return named_losses(output), output, self.forward.target(batch)
        except UserCodeError:
            return {}, output, self.forward.target(batch)


def metric_name(metric: Any) -> str:
    """What results are recorded under: the metric's ``name``, or its class in snake case."""
    given = getattr(metric, "name", None)
    if isinstance(given, str):
        return given
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(metric).__name__).lower()


def _count(target: Any, batch: Any) -> int:
    for value in (target, *(batch if isinstance(batch, list | tuple) else ())):
        if isinstance(value, torch.Tensor) and value.ndim > 0:
            return int(value.shape[0])
    return 1
