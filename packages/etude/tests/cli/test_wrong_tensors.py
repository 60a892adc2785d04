"""Outputs, targets and samples that do not go together: each is told with whose it is, and what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import CONFIG, Commands

PARTS = """
import torch, etude

@etude.MODELS.register
class Net(torch.nn.Module):
    def __init__(self, gives="o", classes=10):
        super().__init__()
        self.layer, self.gives = torch.nn.Linear(64, classes), gives
    def forward(self, x): return eval(self.gives, {"o": self.layer(x)})

@etude.MODELS.register
class Plain: ...

@etude.DATASETS.register
class Data:
    def __init__(self, x="x", y="i % 10", length="64"): self.x, self.y, self.length = x, y, length
    def __len__(self): return eval(self.length)
    def __getitem__(self, i):
        x = torch.ones(64)
        return eval(self.x, {"x": x}), eval(self.y, {"i": int(i), "torch": torch})

@etude.UPDATES.register
class Update:
    def __init__(self, forward, optimizers): ...
    def __call__(self, run): ...
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("+model.gives=o.long()", r"Net.forward (parts.py:9) returned (16, 10) int64; the loss CrossEntropyLoss takes floats"),
        ("+model.gives=o.detach().numpy()", "returned a ndarray; the loss CrossEntropyLoss takes a tensor"),
        ("+model.gives=o[:1]", "returned (1, 10) float32 for 16 targets; its first dimension has to be the batch"),
        ("+model.gives=o.flatten()", "returned (160,) float32 for 16 targets"),
        ("+model.classes=5", "Data.__getitem__ (parts.py:18) gives the target 9, and c.yaml"),
        ("+model.classes=5", "gives 5 scores: classes are 0 to 4"),
        ("+data.train.dataset.y=(-1)", "gives the target -1"),
        ("+data.train.dataset.y=float(i % 10)", "float64; the loss CrossEntropyLoss takes numbers of classes: int(label)"),
        ("+data.train.dataset.y=torch.tensor([i % 10])", "one class for each sample: leave the brackets out"),
        ("+data.train.dataset.x=x.double()", "gives (16, 64) float64 and (16,) int64, and the model computes in float32"),
        ("+data.train.dataset.length=None", "c.yaml:5: Data.__len__ (parts.py:17) gives no number of samples"),
        ("+data.train.dataset.length=64.0", "gives no number of samples"),
        ("model=Plain", "no module; derive its class from torch.nn.Module"),
        ("loss=nn.CrossEntropy", "did you mean 'CrossEntropyLoss'?"),
        ("+update=Update", "is called with the run and the batch"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_told_as_the_users(workdir, capfd, change, message):
    Path("parts.py").write_text(PARTS)
    config = CONFIG.replace("model: {type: MLP, sizes: [64, 16, 10]}", "imports: [parts.py]\nmodel: {type: Net}")
    config = config.replace("{type: Digits, split: train}, batch_size: 256", "{type: Data}, batch_size: 16")
    config = config.replace(', groups: [{match: "*.bias", weight_decay: 0}]', "")
    said = Commands(capfd)("train", "c.yaml", "-q", "--folder", "run", change, c_yaml=config)
    assert said.code == 2 and message in said.err, said.err
    assert "fault of the engine" not in said.err and not Path("run").exists()
