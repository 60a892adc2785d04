"""The example configs convert, and what comes out is checked, trains, and ends in the weights of the original."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from etude import api, compat
from etude.build import Options
from etude.cli import main
from etude_openmm.shared.registries.managers import DefaultScope
from tests.across.converting import weights
from tests.places import EXAMPLES


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Converts a changed example, checks the result, and returns the weights of both."""
    compat.install()
    monkeypatch.setattr(DefaultScope, "_instance_dict", OrderedDict())  # a run of MMEngine leaves its scope behind
    monkeypatch.chdir(tmp_path)

    def convert(example: str, changes: str = "", *overrides: str) -> dict[str, Any]:
        origin = EXAMPLES / example
        monkeypatch.syspath_prepend(str(origin.parent))
        old = str(origin)
        if changes:
            old = "old.py"
            Path(old).write_text(f"_base_ = {str(origin)!r}\n{changes}")
        assert main(["convert", old, *overrides, "-o", "new.yaml", "--force"]) == 0
        assert main(["check", "new.yaml"]) == 0
        config: dict[str, Any] = yaml.safe_load(Path("new.yaml").read_text())
        return config

    yield convert
    for module in ("digits_parts", "ssl_digits", "char_parts"):
        sys.modules.pop(module, None)


def train(*overrides: str) -> Any:
    return api.train("new.yaml", [*overrides], options=Options(folder=Path("few"), quiet=True))


def require_close(old: dict[str, Any], new: dict[str, Any], *, exactly: bool = False) -> None:
    for name in old:
        torch.testing.assert_close(
            new[name], old[name], rtol=0 if exactly else 1e-4, atol=0 if exactly else 1e-6, msg=name
        )


def test_digits(converted: Any) -> None:
    config = converted("mmcv1/digits.py")
    assert config["train"]["workflow"] == [["train", 1], ["val", 1]]
    assert "collate" not in config["data"]["train"]
    run = train("train.epochs=2")
    assert "largest_grad" in Path("few/metrics.jsonl").read_text() and run.metrics["accuracy"] > 0

    quiet = """
model = dict(dropout=0.0)
data = dict(train_dataloader=dict(shuffle=False), train=dict(noise=0.0))
optimizer = dict(_delete_=True, type='AdamW', lr=5e-3, weight_decay=0.05)
runner = dict(max_epochs=2)
custom_hooks = [dict(type='LargestGradHook', interval=10)]
"""
    converted("mmcv1/digits.py", quiet)
    require_close(weights("old.py", Path("a")), weights("new.yaml", Path("b")))
    converted("mmcv1/digits.py", quiet + "lr_config = dict(_delete_=True, policy='fixed')\n")
    require_close(weights("old.py", Path("c")), weights("new.yaml", Path("d")), exactly=True)


def test_mae(converted: Any) -> None:
    config = converted("mmengine/mae_adamw.py")
    assert [phase["type"] for phase in config["schedule"]["lr"]] == ["Linear", "Cosine"]
    assert len(config["optim"]["groups"]) == 5
    assert train("train.epochs=5", "train.validate=5ep", "train.limit_batches=3").metrics["probe/accuracy"] > 0.2


def test_simclr(converted: Any) -> None:
    config = converted("mmengine/simclr_lars.py")
    assert [rule["match"] for rule in config["optim"]["groups"]] == ["*bias*", "*bn*"]
    assert "no parameter is left for them: *downsample.1*" in Path("new.yaml").read_text()
    assert train("train.epochs=5", "train.validate=5ep", "train.limit_batches=3").metrics["probe/accuracy"] > 0.2

    quiet = """
train_dataloader = dict(sampler=dict(shuffle=False), dataset=dict(views=0))
train_cfg = dict(max_epochs=2, val_interval=2)
param_scheduler = None
"""
    converted("mmengine/simclr_lars.py", quiet)
    require_close(weights("old.py", Path("a")), weights("new.yaml", Path("b")), exactly=True)


def test_characters(converted: Any) -> None:
    quiet = [
        "dataloader.train.sampler.shuffle=false",
        "train.train_iter=4",
        "train.warmup_ratio=0",
        "train.scheduler.alpha=1",
    ]
    converted("libai/char_transformer.py", "", *quiet)
    old = api.train(
        str(EXAMPLES / "libai/char_transformer.py"), [*quiet, "train.output_dir=theirs"], options=Options(quiet=True)
    )
    require_close(old.model.state_dict(), weights("new.yaml", Path("b")), exactly=True)


def test_photos(converted: Any) -> None:
    noise = np.random.default_rng(0)
    for folder, many in (("tiles", 10), ("photos", 1)):
        os.mkdir(folder)
        for number in range(many):
            Image.fromarray(noise.integers(0, 255, (64, 64, 3), np.uint8)).save(f"{folder}/{number}.png")
    changes = ["train.epoch=2", "train.valFreq=1", "train.hooks.1.params.freq=1", "model.params.k=[64,32]"]
    config = converted("mcquic/photos.yaml", "", *changes)
    assert [hook["key"] for hook in config["hooks"]] == ["DisablePostProcessAfterEpoch", "CodebookReassign"]
    old = api.train(str(EXAMPLES / "mcquic/photos.yaml"), changes, options=Options(folder=Path("a"), quiet=True))
    new = {name.removeprefix("compound."): value for name, value in weights("new.yaml", Path("b")).items()}
    require_close(old.model.state_dict(), new, exactly=True)
