"""The line of a config that a failure is about."""

from __future__ import annotations

from typing import Any

import pytest

from etude.cli import main
from etude.dialects.config_lines import line_about
from etude.plan import Place, Plan, Spec, Training

SOURCE: dict[str, Any] = {
    "data_root": "data/cats",
    "model": {"head": {"num_classes": 2}, "init_cfg": {"checkpoint": "torchvision://resnet50"}},
    "data": {"train": {"data_prefix": "data/cats/train"}, "num_classes": 2},
}
PLACES = {
    ("data_root",): Place("c.py", 1, ""),
    ("model", "head", "num_classes"): Place("c.py", 2, ""),
    ("model", "init_cfg", "checkpoint"): Place("c.py", 3, ""),
    ("data", "train", "data_prefix"): Place("c.py", 4, ""),
    ("data", "num_classes"): Place("c.py", 5, ""),
}
NET = Spec(kind="model", name="Net")
PLAN = Plan(dialect="mmcv1", model=NET, update=NET, loop=NET, train=Training(), source=SOURCE, places=PLACES)
WRONG_LABEL = "c.py:2: model.head.num_classes is 2; a sample has label 4, so it must be at least 5"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("Target 4 is out of bounds.", WRONG_LABEL),
        ("Class values must be smaller than num_classes.", "c.py:2: model.head.num_classes is 2; a sample has a label that is not below it"),
        ("Target 1 is out of bounds.", "the model has too few classes: a sample has label 1, so it needs at least 2"),
        ("[Errno 2] No such file or directory: 'data/cats/train'", "c.py:4: data.train.data_prefix is 'data/cats/train'"),
        ("[Errno 2] No such file or directory: 'data/cats/val/1.png'", "c.py:1: data_root is 'data/cats'"),
        ("c.py:4: there is No such file data/cats/train", ""),
        ("torchvision://resnet50: Étude downloads nothing", "c.py:3: model.init_cfg.checkpoint is 'torchvision://resnet50'"),
        ("data/cats/train is odd", ""),
    ],
)  # fmt: skip
def test_a_failure_is_followed_by_the_line_that_it_is_about(message: str, line: str) -> None:
    assert line_about(message, PLAN) == line


def test_a_script_without_a_plan_learns_the_label_alone() -> None:
    said = "the model has too few classes: a sample has label 4, so it needs at least 5"
    assert line_about("Target 4 is out of bounds.") == said
    assert line_about("No such file: data/cats/train") == ""


def test_the_command_prints_the_line_below_the_error(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.py").write_text(
        "custom_imports = dict(imports=['tests.mmengine.registered'])\n"
        "model = dict(type='RegisteredNet')\n"
        "train_dataloader = dict(batch_size=2, dataset=dict(type='RegisteredNumbers'))\n"
        "train_cfg = dict(by_epoch=True, max_epochs=1)\n"
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))\n"
        "load_from = 'torchvision://resnet50'\n"
    )
    assert main(["train", "c.py", "--work-dir", "out"]) == 2
    assert capsys.readouterr().err.endswith("etude: c.py:6: load_from is 'torchvision://resnet50'\n")
