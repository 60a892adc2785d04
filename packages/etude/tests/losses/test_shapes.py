"""Outputs and targets of different shapes, in losses and metrics that users define."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import etude

PARTS = """
import torch
import etude


@etude.DATASETS.register
class ShapesLine:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(1) * index, torch.tensor(3.0 * index)


@etude.LOSSES.register
def shapes_distance(output, target):
    return (output - target).abs().mean()


@etude.METRICS.register
class ShapesWorst:
    def reset(self):
        self.worst = 0.0

    __init__ = reset

    def update(self, output, target):
        self.worst = max(self.worst, float((output - target).abs().max()))

    def compute(self):
        return self.worst
"""

CONFIG = """
imports: [parts.py]
model: {type: torch.nn.Linear, in_features: 1, out_features: 1}
loss: LOSS
data:
  train: {dataset: ShapesLine, batch_size: 4}
  val: {dataset: ShapesLine, batch_size: 4}
optim: {type: SGD, lr: 1e-3}
train: {epochs: 1}
metrics: [METRIC]
checkpoint: false
"""


def _warnings(folder: Path, loss: str, metric: str) -> list[str]:
    (folder / "parts.py").write_text(PARTS)
    config = folder / "config.yaml"
    config.write_text(CONFIG.replace("LOSS", loss).replace("METRIC", metric))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        etude.train(config, options=etude.Options(folder=folder / "run", quiet=True))
    return [str(one.message) for one in caught if "broadcast" in str(one.message)]


@pytest.mark.parametrize(
    ("loss", "metric", "named"),
    [
        ("shapes_distance", "R2", ["the loss shapes_distance"]),
        ("MSELoss", "ShapesWorst", ["the metric shapes_worst"]),
        ("shapes_distance", "ShapesWorst", ["the loss shapes_distance", "the metric shapes_worst"]),
        ("MSELoss", "R2", []),
    ],
)
def test_a_loss_or_metric_of_yours_that_may_broadcast_is_named_once(
    tmp_path: Path, loss: str, metric: str, named: list[str]
) -> None:
    said = _warnings(tmp_path, loss, metric)
    assert [one.partition(" gets ")[0] for one in said] == named
