"""Validations that do not come to their end: by a signal, or by a result that they do not give. Nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.cli import main
from etude_openmm.mmengine import files
from tests.mmengine import registered

CONFIG = """
custom_imports = dict(imports=["tests.mmengine.registered"], allow_failed_imports=False)
model = dict(type="RegisteredNet")
train_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler", shuffle=True), dataset=dict(type="RegisteredNumbers"))
train_cfg = dict(by_epoch=True, max_epochs=3)
val_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler", shuffle=False), dataset=dict(type="RegisteredNumbers", length=6))
val_cfg = dict()
val_evaluator = dict(type="RegisteredScore", values=(0.5, 0.7, 0.6))
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.1, momentum=0.9))
default_hooks = dict(checkpoint=dict(type="CheckpointHook", interval=-1, save_best="acc"))
custom_hooks = [dict(type="EMAHook", momentum=0.2)]
randomness = dict(seed=0)
log_level = "ERROR"
"""


def run(folder: Path, text: str, *more: str) -> int:
    config = folder.parent / "c.py"
    config.write_text(text)
    return main(["train", str(config), "--work-dir", str(folder), "-q", *more])


def last(folder: Path) -> dict[str, Any]:
    return files.read((folder / "last_checkpoint").read_text())


def rows(folder: Path) -> list[dict[str, Any]]:
    newest = max(folder.glob("*/vis_data/scalars.json"))
    kept = ("acc", "step", "loss")
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    return [{key: row[key] for key in kept if key in row} for row in lines]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    assert run(tmp_path / "whole", CONFIG) == 0
    return tmp_path / "whole"


@pytest.mark.parametrize("iteration", [4, 12], ids=["inside", "at the end"])
def test_a_signal_ends_a_validation_at_once_and_the_resumed_run_does_it(
    whole: Path, tmp_path: Path, iteration: int
) -> None:
    registered.TerminateValidation.batches = 0
    hooked = CONFIG.replace("custom_hooks = [", f"custom_hooks = [dict(type='TerminateValidation', at={iteration}), ")
    assert run(tmp_path / "cut", hooked) == 143
    assert registered.TerminateValidation.batches == 1
    assert (tmp_path / "cut" / f"iter_{iteration}.pth").exists()
    assert not list((tmp_path / "cut").glob("best_*")) or iteration == 12
    values = {4: "(0.5, 0.7, 0.6)", 12: "(0.6,)"}[iteration]
    assert run(tmp_path / "cut", CONFIG.replace("(0.5, 0.7, 0.6)", values), "--resume") == 0
    one, other = last(whole), last(tmp_path / "cut")
    for part in ("state_dict", "ema_state_dict"):
        assert all(one[part][name].equal(other[part][name]) for name in one[part])
    assert rows(whole) == rows(tmp_path / "cut")
    assert {p.name for p in whole.glob("best_*")} == {p.name for p in (tmp_path / "cut").glob("best_*")}


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('save_best="acc"', 'save_best="accc", rule="greater"', "save_best is 'accc'"),
        ("randomness", "param_scheduler = dict(type='ReduceOnPlateauLR', monitor='ac')\nrandomness", "monitor of ReduceOnPlateauLR is 'ac'"),
    ],
)  # fmt: skip
def test_a_result_that_is_not_there_is_told_and_what_was_trained_is_kept(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, word: str
) -> None:
    capsys.readouterr()
    assert run(tmp_path / "wrong", CONFIG.replace(old, new)) == 2
    said = capsys.readouterr().err
    assert f"{word}, which the validation did not give; did you mean 'acc'?" in said and "Traceback" not in said
    assert (tmp_path / "wrong" / "iter_4.pth").exists()
    assert run(tmp_path / "wrong", CONFIG, "--resume") == 0
    one, other = last(whole), last(tmp_path / "wrong")
    assert all(one["state_dict"][name].equal(other["state_dict"][name]) for name in one["state_dict"])
    assert rows(whole) == rows(tmp_path / "wrong")
    assert {p.name for p in whole.glob("best_*")} == {p.name for p in (tmp_path / "wrong").glob("best_*")}
