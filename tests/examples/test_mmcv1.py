"""The digits in MMClassification's words: accuracy of the native example, averages, best checkpoint, exact resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude import compat
from etude.building.options import Options

CONFIG = Path(__file__).parents[2] / "examples" / "mmcv1" / "digits.py"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slowed down by a second thread."""
    compat.install()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _train(folder: Path, **extras: Any) -> Any:
    return etude.train(CONFIG, options=Options(folder=folder, quiet=True, extras=extras)).runner


def test_the_digits_are_learnt_and_a_resumed_run_ends_in_the_same_bits(tmp_path: Path) -> None:
    whole = _train(tmp_path / "whole")
    messages = whole.meta["hook_msgs"]
    assert messages["best_score"] > 97
    assert Path(messages["best_ckpt"]).is_file()
    kept = sorted(path.name for path in (tmp_path / "whole").glob("epoch_*.pth"))
    assert kept == ["epoch_6.pth", "epoch_7.pth", "epoch_8.pth"]
    lines = next((tmp_path / "whole").glob("*.log.json")).read_text()
    assert "largest_grad" in lines
    assert "grad_norm" in lines
    again = _train(tmp_path / "again", resume_from=str(tmp_path / "whole" / "epoch_6.pth"))
    before, after = whole.model.state_dict(), again.model.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
