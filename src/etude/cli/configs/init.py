"""Create a project: a config, a model, a hook and a test. Train it with `etude train config.yaml`."""

from __future__ import annotations

import argparse
from pathlib import Path

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
    """Says hello when training begins, and the result of every epoch."""

    def __init__(self, name: str) -> None:
        self.reader = name

    def before_train(self, run: etude.Run) -> None:
        self.say(run, f"hello, {self.reader}: {run.total_steps - run.step} steps to go")

    def after_eval(self, run: etude.Run) -> None:
        self.say(run, f"epoch {run.epoch + 1}: {run.metrics['accuracy']:.1%} right")

    def say(self, run: etude.Run, text: str) -> None:
        if run.world.is_main:  # with --nproc every process has this hook; one of them speaks
            print(text)
'''

TEST = '''\
"""Run it with: pip install pytest && python -m pytest"""

from pathlib import Path

import etude


def test_the_model_learns(tmp_path):
    config = Path(__file__).with_name("config.yaml")
    run = etude.train(config, ["train.epochs=3"], options=etude.Options(folder=tmp_path / "run", quiet=True))
    assert run.metrics["accuracy"] > 0.8
'''

FILES = {"config.yaml": CONFIG, "parts.py": PARTS, "test_project.py": TEST}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="folder to create; existing files are never overwritten")


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
    print(f"made {', '.join(FILES)} in {folder}/")
    print(f"next:  cd {folder} && etude train config.yaml")
    print("test:  pip install pytest && python -m pytest")
    return 0
