"""Several processes that nothing holds together are refused before anything is written."""

from __future__ import annotations

import pytest

import etude
from etude.errors import UserError


def test_a_native_run_is_refused_in_a_world_of_two(tmp_path, monkeypatch):
    config = tmp_path / "digits.yaml"
    config.write_text(
        """
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: val}, batch_size: 64}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 1}
"""
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(UserError, match="rank 1 of 2"):
        etude.train(config, options=etude.Options(folder=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
