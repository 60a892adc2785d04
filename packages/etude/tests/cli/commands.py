"""A small config, and the command line called in this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etude.cli import main

CONFIG = """\
model: {type: MLP, sizes: [64, 16, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 256}
  val: {dataset: {type: Digits, split: val}, batch_size: 90}
optim: {type: AdamW, lr: 1e-3, groups: [{match: "*.bias", weight_decay: 0}]}
schedule:
  lr: [{type: Cosine, until: end}]
train: {epochs: 2}
metrics: [Accuracy]
checkpoint: {every: 1ep, keep: 2, best: accuracy}
log: {every: 3step}
"""


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


class Commands:
    """``etude("train", "c.yaml")`` runs the command; files are written first: ``c_yaml="…"``."""

    def __init__(self, capfd) -> None:
        self.capfd = capfd

    def __call__(self, *words: str, **files: str) -> Said:
        for name, text in files.items():
            Path(".".join(name.rsplit("_", 1))).write_text(text, encoding="utf-8")
        self.capfd.readouterr()
        code = main(list(words))
        out, err = self.capfd.readouterr()
        return Said(code, out, err)
