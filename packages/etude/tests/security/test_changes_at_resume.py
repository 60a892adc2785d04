"""Code and data that change between a run and its resume: they are named, and refused where that was asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.zygote import etude

CONFIG = """\
imports: [parts.py]
model: {type: Net}
loss: CrossEntropyLoss
data: {train: {dataset: Mine, batch_size: 16}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 2, threads: 1}
"""
PARTS = """\
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset

from etude import DATASETS, MODELS


@MODELS.register
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(self.act(x))


X = torch.arange(256.0).reshape(64, 4) / 256


class Rows(Dataset):
    def __init__(self):
        self.rows = X
        self.marks = np.arange(64) % 2
        self.names = [f"row {n}" for n in range(64)]
        self.tables = {"a": torch.ones(3)}
        self.path = Path("rows.txt")
        self.cache = {}
        self.made_of = object()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.cache[index] = index
        return self.rows[index], int(self.marks[index])


@DATASETS.register
def Mine():
    return Rows()
"""


@pytest.fixture
def project(workdir: Path) -> Path:
    Path("parts.py").write_text(PARTS)
    Path("config.yaml").write_text(CONFIG)
    Path("rows.txt").write_text("1 2 3\n")
    etude("train", "config.yaml", "--folder", "run", "-q", check=True)
    for step in ("step-000000008",):  # the resume has the second epoch to do
        shutil.rmtree(f"run/checkpoints/{step}")
    return workdir


def change(old: str, new: str) -> None:
    assert old in PARTS
    Path("parts.py").write_text(PARTS.replace(old, new))


def test_a_resume_says_which_lines_of_the_code_have_changed(project: Path) -> None:
    change("nn.ReLU()", "nn.GELU()")
    done = etude("train", "config.yaml", "--folder", "run", "--resume")
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "changed since the run began: parts.py (+1 −1 lines)" in said
    assert "-        self.act = nn.ReLU()" in said and "+        self.act = nn.GELU()" in said
    assert "nn.GELU" in Path("run/log.txt").read_text()


def test_a_resume_under_strict_refuses_changed_code(project: Path) -> None:
    before = sorted(Path("run/checkpoints").iterdir())
    change("nn.ReLU()", "nn.GELU()")
    done = etude("train", "config.yaml", "--folder", "run", "--resume", "--strict")
    assert done.returncode == 2 and "parts.py (+1 −1 lines)" in done.stderr
    assert sorted(Path("run/checkpoints").iterdir()) == before


def test_a_resume_with_the_same_code_and_data_says_nothing(project: Path) -> None:
    Path("elsewhere.py").write_text("X = 1\n")
    done = etude("train", "config.yaml", "--folder", "run", "--resume", "--strict")
    assert done.returncode == 0 and "changed since" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("self.rows = X", "self.rows = X + 1", "rows"),
        ("np.arange(64) % 2", "np.arange(64) % 3 % 2", "marks"),
        ('f"row {n}"', 'f"line {n}"', "names"),
        ("torch.ones(3)", "torch.zeros(3)", "tables"),
        ("return Rows()", "return Subset(Rows(), list(range(63, -1, -1)))", "fingerprint"),
    ],
)
def test_data_under_any_name_are_noticed_when_they_change(project: Path, old: str, new: str, field: str) -> None:
    change(old, new)
    done = etude("train", "config.yaml", "--folder", "run", "--resume")
    assert done.returncode == 2 and "another one than the checkpoint was made with" in done.stderr
    assert field in done.stderr and "--allow-change data" in done.stderr
    accepted = etude("train", "config.yaml", "--folder", "run", "--resume", "--allow-change", "data")
    assert accepted.returncode == 0, accepted.stderr


def test_a_file_that_a_dataset_names_is_noticed_when_it_changes(project: Path) -> None:
    Path("rows.txt").write_text("1 2 4\n")
    done = etude("train", "config.yaml", "--folder", "run", "--resume")
    assert done.returncode == 2 and "path changed" in done.stderr


@pytest.mark.parametrize(
    ("old", "new"), [("self.cache = {}", "self.cache = {1: 2}"), ("object()", "{'made': 'today'}")]
)
def test_what_is_not_data_may_change(project: Path, old: str, new: str) -> None:
    change(old, new)
    done = etude("train", "config.yaml", "--folder", "run", "--resume")
    assert done.returncode == 0 and "changed since the run began" in done.stdout + done.stderr


@pytest.mark.thorough
def test_several_ranks_name_and_refuse_changes_as_one_does(workdir: Path) -> None:
    Path("parts.py").write_text(PARTS)
    Path("config.yaml").write_text(CONFIG)
    Path("rows.txt").write_text("1 2 3\n")
    ranks = ("train", "config.yaml", "--folder", "run", "--nproc", "2")
    etude(*ranks, "-q", "train.epochs=1", check=True)
    change("nn.ReLU()", "nn.GELU()")
    refused = etude(*ranks, "--resume", "--strict", "--allow-change", "train.epochs")
    assert refused.returncode == 2 and "parts.py (+1 −1 lines); --strict does not accept it" in refused.stderr
    resumed = etude(*ranks, "--resume", "--allow-change", "train.epochs")
    said = resumed.stdout + resumed.stderr
    assert resumed.returncode == 0 and "+        self.act = nn.GELU()" in said and "resumed from step 4 " in said
    change("self.rows = X", "self.rows = X + 1")
    refused = etude(*ranks, "--resume", "train.epochs=3", "--allow-change", "train.epochs")
    assert refused.returncode == 2 and "rows changed" in refused.stderr and "--allow-change data" in refused.stderr
