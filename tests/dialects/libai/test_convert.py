"""A converted config trains the same weights; what cannot be said natively is told, all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude.build import Options
from etude.cli import main


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_native_config_ends_in_the_same_weights(
    config: Path, trainer_of: Callable[..., Any], accumulate: int, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = ["model.dropout=0.3", f"train.num_accumulation_steps={accumulate}", "train.train_iter=7"]
    assert main(["convert", str(config), *changes, "-o", "native.yaml"]) == 0
    assert "evaluation" in capsys.readouterr().err
    run = etude.train("native.yaml", options=Options(folder=Path("native"), quiet=True))
    trainer = trainer_of(*changes)
    trainer.train()
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], value), name


def test_what_cannot_be_converted_is_told_with_its_place(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(config), "train.train_epoch=2", "train.amp.enabled=true"]) == 2
    told = capsys.readouterr().err
    assert "train.train_epoch counts by the length of the data" in told
    assert "mixed precision" in told
