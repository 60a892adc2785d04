"""``etude lr-find`` and ``etude fit-batch``: suggestions that leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import main
from etude.errors import UserError
from etude.sweep.fit_batch import parse_bytes

CONFIG = """
model: {type: MLP, sizes: [64, 32, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: train}, batch_size: 64}}
optim: {type: SGD, lr: 0.1, groups: [{match: "*.bias", lr_mult: 2}]}
schedule: {lr: [{type: Cosine}]}
train: {epochs: 2, threads: 1}
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(CONFIG)


def test_a_rate_is_suggested_between_too_small_and_too_large(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lr-find", "a.yaml", "--from", "1e-5", "--to", "100", "--steps", "60"]) == 0
    out = capfd.readouterr().out
    rate = float(out.partition("optim.lr=")[2])
    assert 1e-3 < rate < 20, out
    assert [path.name for path in Path().iterdir()] == ["a.yaml"]


def test_rates_that_make_no_range_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lr-find", "a.yaml", "--from", "1", "--to", "0.1"]) == 2
    assert "not from 1 to 0.1" in capfd.readouterr().err
    assert main(["lr-find", "a.yaml", "--from", "1e-12", "--to", "1e-11", "--steps", "3"]) in (0, 2)


@pytest.mark.thorough  # each size is tried in a process of its own
def test_the_largest_batch_below_a_limit_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fit-batch", "a.yaml", "--memory", "100G", "--start", "1024", "--most", "4096"]) == 0
    said = capfd.readouterr().out
    assert "the training data has 1437 samples" in said and "suggestion: data.train.batch_size=1437" in said
    assert main(["fit-batch", "a.yaml", "--memory", "1M"]) == 2
    assert "not even a batch of 16 fits into 1 MB" in capfd.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["a.yaml"]


def test_memory_is_written_as_people_do() -> None:
    assert parse_bytes("1.5GB") == 3 << 29
    with pytest.raises(UserError, match="write 2G or 512M"):
        parse_bytes("lots")
