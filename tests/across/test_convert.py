"""``etude convert`` drafts a native config: direct forms become native keys, all other values comments with their line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from etude import compat
from etude.cli import main
from etude.config.tree import Tree
from etude.dialects.draft import Draft
from etude.dialects.native.lower import lower
from etude.optim.groups import fits, named_parameters
from tests.places import EXAMPLES

CASES = {
    "mmcv1/digits.py": ("digits.py:11: model.init_cfg", "digits.py:33: workflow", "digits.py:35: custom_hooks"),
    "mmengine/simclr_lars.py": ("simclr_lars.py:7: model.backbone", "digits.py:22: val_evaluator"),
    "mmengine/mae_adamw.py": ("mae_adamw.py:5: model.backbone",),
    "libai/char_transformer.py": ("train.evaluation", "char_transformer.py:20: graph"),
    "mcquic/photos.yaml": ("photos.yaml:12: train.target", "photos.yaml:16: train.hooks"),
}


def drafted(example: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.syspath_prepend(str(example.parent))
    assert main(["convert", str(example), "-o", str(tmp_path / "new.yaml")]) == 0
    return (tmp_path / "new.yaml").read_text()


@pytest.mark.parametrize("example", CASES)
def test_every_value_of_an_example_is_in_its_draft_or_in_a_comment(
    example: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = drafted(EXAMPLES / example, monkeypatch, tmp_path)
    for line in CASES[example]:
        assert re.search(f"^# - .*{re.escape(line)}", text, re.MULTILINE), line
    config: dict[str, Any] = yaml.safe_load(text)
    assert {"model", "data", "optim", "train", "checkpoint"} <= set(config)


def test_what_has_a_direct_form_is_native(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert yaml.safe_load(drafted(EXAMPLES / "mmcv1/digits.py", monkeypatch, tmp_path)) == {
        "name": "digits",
        "imports": ["digits_parts"],
        "model": {"type": "digits_parts.DigitNet", "width": 16, "dropout": 0.1},
        "data": {
            "train": {
                "dataset": {"type": "digits_parts.DigitImages", "split": "train", "noise": 0.05},
                "batch_size": 64,
                "shuffle": True,
            },
            "val": {"dataset": {"type": "digits_parts.DigitImages", "split": "val"}, "batch_size": 256},
        },
        "optim": {
            "type": "AdamW", "lr": 0.005, "weight_decay": 0.05, "clip_norm": 5.0,
            "groups": [{"kind": "norm", "decay_mult": 0.0}, {"match": "*.bias", "decay_mult": 0.0}],
        },
        "schedule": {
            "lr": [{"type": "Linear", "from": 0.1, "to": 1.0, "until": "20step"}, {"type": "Cosine", "to": 0.01}]
        },
        "train": {"epochs": 8, "seed": 0, "validate": "1ep"},
        "checkpoint": {"every": "1ep", "keep": 3},
        "log": {"every": "10step"},
    }  # fmt: skip


def test_a_draft_has_the_parameter_groups_of_the_original(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    optimizer = lower(Tree(yaml.safe_load(drafted(EXAMPLES / "mmcv1/digits.py", monkeypatch, tmp_path)))).optimizers[""]
    compat.install()
    from mmcv.runner import build_optimizer

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2))
    rules = {"norm_decay_mult": 0.0, "bias_decay_mult": 0.0}
    theirs = build_optimizer(model, {"type": "AdamW", "lr": 0.005, "weight_decay": 0.05, "paramwise_cfg": rules})
    decays = {id(p): group["weight_decay"] for group in theirs.param_groups for p in group["params"]}
    for named in named_parameters(model):
        rule = next((group for group in optimizer.groups if fits(group, named)), None)
        assert 0.05 * (1.0 if rule is None else rule.decay_mult) == decays[id(named.parameter)], named.name


def test_a_config_with_mistakes_is_reported_and_not_drafted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(f"_base_ = {str(EXAMPLES / 'mmcv1/digits.py')!r}\noptimizer = dict(type='Addam')\n")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 2
    told = capsys.readouterr().err
    assert "old.py:2" in told and "'Adam" in told and not os.path.exists("new.yaml")


def test_a_file_that_is_there_is_not_replaced_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "new.yaml"
    new.write_text("mine")
    words = ["convert", str(EXAMPLES / "mcquic/photos.yaml"), "-o", str(new)]
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err and new.read_text() == "mine"
    assert main([*words, "--force"]) == 0
    assert "without a direct form" in capsys.readouterr().out
    assert main([*words[:-1], str(tmp_path / "nowhere" / "new.yaml")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_values_that_a_class_builds_itself_are_left_to_the_reader() -> None:
    values = {
        "model": {"type": "Net", "width": 3, "head": {"type": "Linear"}, "shape": (2, 2)},
        "_hidden": 1,
        "empty": {},
    }
    draft = Draft(Tree(values), "x")
    assert draft.component("model", target="my.Net") == {"type": "my.Net", "width": 3, "shape": [2, 2]}
    assert list(draft.left()) == ["model.head = {'type': 'Linear'}"]


def test_tensors_and_references_are_left_to_the_reader() -> None:
    draft = Draft(Tree({"model": {"type": "Net", "weight": torch.ones(2), "lr": "${..lr}"}}), "x")
    assert draft.component("model", target="Net") == {"type": "Net"}
    assert len(list(draft.left())) == 2
