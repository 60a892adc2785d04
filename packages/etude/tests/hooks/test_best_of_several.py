"""``best_k`` keeps the best results there were, in whatever order they came."""

from __future__ import annotations

from pathlib import Path

import pytest

import etude
from etude.building.options import Options
from etude.checkpoint.store import Store
from etude.errors import SaveError

CONFIG = """
imports: [scores.py]
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 512}
  val: {dataset: {type: Digits, split: val}, batch_size: 512}
optim: {type: SGD, lr: 0.1}
train: {epochs: 6}
metrics: [Accuracy]
hooks: [{type: scores.Scores, priority: 5}]
checkpoint: {every: 100ep, keep: 1, best: accuracy, best_k: 2}
"""
SCORES = """
from etude import Hook
class Scores(Hook):
    def after_eval(self, run):
        run.metrics["accuracy"] = [0.5, 0.9, 0.7, float("nan"), 0.8, 0.1][run.epoch]
"""


@pytest.fixture
def config(workdir: Path) -> Path:
    (workdir / "scores.py").write_text(SCORES)
    (workdir / "c.yaml").write_text(CONFIG)
    return workdir / "c.yaml"


def test_the_two_best_are_kept(config):
    etude.train(config, options=Options(folder=Path("run"), quiet=True))
    kept = {entry.step: entry.metrics.get("accuracy") for entry in Store(Path("run/checkpoints")).entries()}
    assert sorted(score for score in kept.values() if score is not None and score > 0.5) == [0.8, 0.9]


def test_a_log_that_cannot_be_written_is_an_error_of_the_disk(config):
    Path("run/log.txt").mkdir(parents=True)
    with pytest.raises(SaveError, match="EISDIR"):
        etude.train(config, options=Options(folder=Path("run"), quiet=True))
