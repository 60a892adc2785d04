"""Planted differences between two runs are found at the right step, and their cause is named."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etude.cli import main

CONFIG = """
imports: [own.py]
model: {{type: Own, width: {width}}}
loss: CrossEntropyLoss
data: {{train: {{dataset: {{type: Noisy, noise: {noise}}}, batch_size: 256, shuffle: true}}}}
optim: {{type: SGD, lr: {lr}, momentum: 0.9}}
train: {{steps: 14, threads: {threads}, seed: {seed}}}
checkpoint: {{every: 5step, keep: null}}
log: {{every: 5step}}
"""
OWN = """
import torch
from etude import DATASETS, MODELS
from etude.data.datasets.digits import Digits


@DATASETS.register
class Noisy(Digits):
    def __init__(self, noise=0.0):
        super().__init__("train")
        self.noise = noise

    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return image + self.noise * torch.randn(image.shape), target


@MODELS.register
class Own(torch.nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, width), torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
"""
USUAL: dict[str, Any] = {"width": 32, "noise": 0.0, "lr": 0.1, "threads": 1, "seed": 0}


def train(folder: str, code: str = OWN, **changes: Any) -> None:
    Path("own.py").write_text(code)
    Path("config.yaml").write_text(CONFIG.format(**USUAL | changes))
    command = [sys.executable, "-m", "etude", "train", "config.yaml", "-q", "--folder", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train("a")


def test_equal_runs_are_the_same(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    train("b")
    assert main(["bisect", "a", "b"]) == 0
    assert "all 14 common steps are bitwise identical" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "step", "cause"),
    [
        ({"seed": 3}, 1, "other samples"),
        ({"lr": 0.05}, 2, "other settings of the optimizer: lr 0.1 in A, 0.05 in B"),
        ({"noise": 0.1}, 1, "other augmentation or other data"),
        ({"width": 33}, 1, "other initial weights: other shapes"),
    ],
)
def test_a_changed_config_is_named(
    here: None, changes: dict[str, Any], step: int, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train("b", **changes)
    assert main(["bisect", "a", "b"]) == 1
    shown = capsys.readouterr().out
    assert f"step {step} is the first that differs" in shown and cause in shown, shown
    assert next(iter(changes)) in shown.partition("what else differs")[2]


def test_a_changed_operator_is_found_with_the_line_of_code(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    train("b", OWN.replace("torch.relu", "torch.nn.functional.gelu"))
    assert main(["bisect", "a", "b"]) == 1
    shown = capsys.readouterr().out
    assert "other operators: A runs relu.default, B gelu.default" in shown
    assert "+        return self.second(torch.nn.functional.gelu(self.first(x)))" in shown


def test_a_difference_in_the_middle_of_a_run_is_found_where_it_began(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    later = OWN.replace("torch.relu(self.first(x))", "self.act(self.first(x))").replace(
        "    def forward",
        "    steps = 0\n    def act(self, x):\n        Own.steps += 1\n"
        "        return torch.relu(x) if Own.steps < 9 else torch.nn.functional.leaky_relu(x)\n\n    def forward",
    )
    train("b", later)
    assert main(["bisect", "a", "b", "--no-replay"]) == 1
    assert "step 9 is the first that differs: the loss is" in capsys.readouterr().out


def test_a_file_that_changed_is_put_back_for_a_replay(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(OWN.replace("torch.relu", "torch.tanh"))
    command = [sys.executable, "-m", "etude", "replay", "a", "--step", "12"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "bitwise as in the ledger" in done.stdout, done.stdout + done.stderr
    assert "own.py changed since; the text of the run was used" in done.stdout


def test_an_interpreter_that_is_none_is_named(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    train("b", lr=0.2)
    assert main(["bisect", "a", "b", "--python-b", "no/python"]) == 2
    assert "no/python cannot be started" in capsys.readouterr().err


PUSH = """

from etude import HOOKS
from etude.core.hook import Hook

@HOOKS.register
class Push(Hook):
    def after_step(self, run):
        if run.step == 6:
            with torch.no_grad():
                run.model.first.bias.add_(0.01)
"""


def test_a_hook_that_changes_weights_is_named(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.yaml").write_text(CONFIG.format(**USUAL) + "hooks: [Push]\n")
    Path("own.py").write_text(OWN + PUSH)
    command = [sys.executable, "-m", "etude", "train", "config.yaml", "-q", "--folder", "b"]
    subprocess.run(command, check=True)
    assert main(["bisect", "a", "b"]) == 1
    shown = capsys.readouterr().out
    assert "step 8 is the first that differs" in shown and "the update of step 7 left different weights" in shown
    assert "a hook changes the weights after the update" in shown and "only in B: hook Push" in shown


def test_an_edited_checkpoint_is_named(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file, save_file

    from etude.checkpoint.manifest import _digest

    command = [sys.executable, "-m", "etude", "train", "config.yaml", "-q", "--folder", "b"]
    subprocess.run([*command, "train.steps=10"], check=True)
    newest = sorted(Path("b/checkpoints").glob("step-*"))[-1]
    values = load_file(newest / "model.safetensors")
    values["first.bias"][3] += 0.5
    save_file(values, newest / "model.safetensors")
    body = json.loads((newest / "manifest.json").read_text())
    data = (newest / "model.safetensors").read_bytes()
    body["files"]["model.safetensors"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    body.pop("digest")
    (newest / "manifest.json").write_text(json.dumps(body | {"digest": _digest(body)}))
    subprocess.run([*command, "--resume"], check=True)
    assert main(["bisect", "a", "b"]) == 1
    shown, said = capsys.readouterr()
    assert "step 11 is the first that differs" in shown, said
    assert "B goes on with other weights than it had come to" in shown
    assert "step-000000010 of B has been edited, or is of another run: first.bias" in shown
