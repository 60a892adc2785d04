"""Outputs and targets of different shapes, in losses and metrics that users define."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import etude
from etude.errors import ReturnError
from etude.losses.outputs import Watched

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


def _warnings(folder: Path, loss: str, metric: str, parts: str = PARTS) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "parts.py").write_text(parts)
    config = folder / "config.yaml"
    config.write_text(CONFIG.replace("LOSS", loss).replace("METRIC", metric))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        etude.train(config, options=etude.Options(folder=folder / "run", quiet=True))
    return [str(one.message) for one in caught if "broadcast" in str(one.message)]


@pytest.mark.parametrize(("metric", "named"), [("ShapesWorst", ["the metric shapes_worst"]), ("R2", [])])
def test_a_metric_of_yours_that_may_broadcast_is_named_once(tmp_path: Path, metric: str, named: list[str]) -> None:
    found = _warnings(tmp_path, "MSELoss", metric)
    assert len(found) == len(named)
    assert all(name in text and "(4, 1)" in text and "(4,)" in text for name, text in zip(named, found, strict=True))


def test_a_loss_of_yours_that_would_broadcast_is_refused_unless_it_says_that_it_reshapes(tmp_path: Path) -> None:
    with pytest.raises(ReturnError, match=r"loss shapes_distance gets an output of shape \(4, 1\) and a target of"):
        _warnings(tmp_path, "shapes_distance", "R2")
    assert ReturnError.exit_code == 2
    allowed = PARTS.replace("    return (output - target)", "    return (output[:, 0] - target)")
    allowed = allowed.replace("@etude.METRICS", "shapes_distance.broadcasts = True\n\n\n@etude.METRICS")
    assert _warnings(tmp_path / "own", "shapes_distance", "R2", parts=allowed) == []


@pytest.mark.parametrize("target", [torch.arange(4), torch.arange(4.0), torch.zeros(4, dtype=torch.bool)])
def test_targets_of_any_type_count_and_single_samples_show_nothing(target):
    watched = Watched(lambda output, target: (output - target.float()).mean())
    assert watched(torch.ones(1, 1), target[:1]).ndim == 0
    with pytest.raises(ReturnError, match="broadcast to a matrix"):
        watched(torch.ones(4, 1), target)
    assert Watched(lambda output, target: output.mean())(torch.ones(4, 1), target.reshape(4, 1)) == 1
