"""The ways from a native config into code: a config of each, the place that a message about it names, and what would run."""

from __future__ import annotations

#: A file that code makes when it runs.
RAN = "ran"
PLAIN = """\
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 512}}
optim: {type: torch.optim.SGD, lr: 0.1}
train: {epochs: 1, threads: 1}
"""
PARTS = """\
from pathlib import Path

from torch import nn

Path("ran").write_text("it ran")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1))
"""
WAYS = {
    "a file": ("imports: [parts.py]\n" + PLAIN, "config.yaml:1", "parts.py"),
    "a module": ("imports: [parts]\n" + PLAIN, "config.yaml:1", "parts"),
    "a module of Python": ("imports: [os]\n" + PLAIN, "config.yaml:1", "os"),
    "a model": (PLAIN.replace("{type: MLP, sizes: [64, 10]}", "parts.Net"), "config.yaml:1", "parts.Net"),
    "a metric": (PLAIN + "metrics: [parts.Net]\n", "config.yaml:6", "parts.Net"),
    "a hook": (PLAIN + "hooks: [{type: parts.Net, every: 1ep}]\n", "config.yaml:6", "parts.Net"),
    "an argument": (PLAIN.replace("dataset: Digits", "dataset: {type: Digits, transform: parts.Net}"), "config.yaml:3", "parts.Net"),
    "a folder of the name of a package": (PLAIN.replace("{type: MLP, sizes: [64, 10]}", "timm.Net"), "config.yaml:1", "timm.Net"),
    "another installed package": (PLAIN.replace("dataset: Digits", "dataset: yaml.Loader"), "config.yaml:3", "yaml.Loader"),
}  # fmt: skip
