"""``etude init DIR``: a small project of one's own that runs at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from etude.errors import UserError

CONFIG = """\
# Try:  etude check config.yaml   ·   etude plan config.yaml   ·   etude train config.yaml
imports: [parts.py]
model: {type: TwoLayers, hidden: 64}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64, shuffle: true}
  val: {dataset: {type: Digits, split: val}, batch_size: 256}
optim: {type: AdamW, lr: 3e-3, weight_decay: 0.01}
schedule:
  lr: [{type: Linear, from: 0.1, until: 1ep}, {type: Cosine, until: end}]
train: {epochs: 10, validate: 1ep, threads: 1}
metrics: [Accuracy]
hooks: [{type: Greeting, name: world}]
checkpoint: {every: 1ep, keep: 2, best: accuracy}
log: {every: 20step}
"""

PARTS = '''\
"""A model and a hook of your own; the config names them."""

import torch

import etude


@etude.MODELS.register
class TwoLayers(torch.nn.Module):
    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@etude.HOOKS.register
class Greeting(etude.Hook):
    """Says hello when training begins and tells every epoch's result."""

    def __init__(self, name: str) -> None:
        self.name_of_reader = name

    def before_train(self, run: etude.Run) -> None:
        print(f"hello, {self.name_of_reader}: {run.total_steps} steps to go")

    def after_eval(self, run: etude.Run) -> None:
        print(f"epoch {run.epoch + 1}: {run.metrics['accuracy']:.1%} right")
'''

TEST = '''\
"""python -m pytest"""

import os

import etude
from etude.build import Options


def test_the_model_learns(tmp_path):
    config = os.path.join(os.path.dirname(__file__), "config.yaml")
    run = etude.train(config, ["train.epochs=3"], options=Options(folder=tmp_path / "run", quiet=True))
    assert run.metrics["accuracy"] > 0.8
'''

FILES = {"config.yaml": CONFIG, "parts.py": PARTS, "test_project.py": TEST}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("init", help="a small project of your own that runs at once")
    parser.add_argument("dir", metavar="DIR", help="a folder; files that exist there are never overwritten")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    folder = Path(args.dir)
    taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise UserError(f"{folder} has {', '.join(taken)} already; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    print(f"made {', '.join(FILES)} in {folder}/\nnext:  cd {folder} && etude train config.yaml")
    return 0
