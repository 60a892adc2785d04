"""Parts of a user's project that keep no promise; imported by configs of tests."""

from __future__ import annotations

from typing import Any

import torch

from tests.mmengine import toy  # isort: skip  (serves the names below)
from mmengine.registry import HOOKS, METRICS, MODELS


@MODELS.register_module(force=True)
class WrongNet(toy.Net):
    """Gives what is asked for in the place of its losses, from iteration ``since`` on."""

    def __init__(self, gives: str = "", since: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gives, self.since, self.count = gives, since, 0

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        right = super().forward(inputs, data_samples, mode)
        if mode != "loss":
            return right
        self.count += 1
        if self.count <= self.since:
            return right
        loss: torch.Tensor = right["loss"]
        wrong = {
            "another name": {"ce": loss},
            "a tensor": loss,
            "a float": {"loss": 1.0},
            "no gradient": {"loss": loss.detach()},
            "nan": {"loss": loss * float("nan")},
        }
        return wrong.get(self.gives, right)


@MODELS.register_module(force=True)
class OtherWords(toy.Net):
    def forward(self, images: Any, data_samples: Any = None, mode: str = "tensor") -> Any:  # type: ignore[override]
        """Its batches hold `inputs`."""


def nothing(sample: Any) -> None:
    """A transform that gives no sample."""


@METRICS.register_module(force=True)
class NoDict(toy.BaseMetric):
    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(1)

    def compute_metrics(self, results: list[int]) -> Any:
        return sum(results)


@HOOKS.register_module(force=True)
class Short(toy.Hook):
    def after_train_iter(self, runner: Any) -> None:  # type: ignore[override]
        """Takes less than it is given."""
