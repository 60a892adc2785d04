from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import etude
from etude.building.options import Options

EXAMPLES = Path(__file__).parents[2] / "examples" / "native"
SHORTER = {
    "digits.yaml": [],
    "characters.yaml": ["train.steps=12", "train.validate=6step", "checkpoint.every=6step", "log.every=4step", "+model.width=16", "data.train.batch_size=4", "schedule.lr.0.until=4step", "data.val.batch_size=256", "train.limit_batches=6"],
    "gan/gan.yaml": ["train.epochs=2", "checkpoint.every=1ep", "log.every=20step"],
    "fashion.yaml": ["train.epochs=1", "data.train.workers=0", "model.channels=[4]"],
    "finetune.yaml": ["train.epochs=3"],
    "regression.yaml": ["train.epochs=20", "schedule.lr=Constant"],
    "words/words.yaml": ["checkpoint.every=1ep"],
    "two_processes.yaml": ["train.epochs=1"],
    "gpt/gpt.yaml": ["train.steps=4", "train.validate=4step", "checkpoint.every=2step", "log.every=2step", "schedule=null", "train.limit_batches=4"],
}  # fmt: skip


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """A copy of the examples, with the data that the repository does not hold: sentences, images like Fashion-MNIST's."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("examples") / "native"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("fashion", "*.parquet", "__pycache__"))
    runpy.run_path(str(folder / "words" / "make_data.py"))["main"](folder / "words" / "sentences.parquet")
    (folder / "fashion").mkdir()
    for prefix in ("train", "t10k"):
        images, labels = np.random.RandomState(0).randint(0, 255, (256, 28, 28)), np.arange(256) % 10
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (folder / "fashion" / f"{prefix}-{kind}-ubyte").write_bytes(head + array.astype(np.uint8).tobytes())
    return folder


def test_every_example_is_run_here():
    assert {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml")} == set(SHORTER)


@pytest.mark.parametrize("name", SHORTER)
def test_an_example_trains_and_leaves_a_run_behind(name, examples, tmp_path):
    run = etude.train(examples / name, SHORTER[name], options=Options(folder=tmp_path / "run", quiet=True))
    assert run.step == run.total_steps
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left >= {"plan.yaml", "config", "env.json", "log.txt", "metrics.jsonl", "timing.jsonl", "checkpoints"}
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] == run.step


def test_the_built_in_example_learns_the_digits(tmp_path):
    run = etude.train(EXAMPLES / "digits.yaml", options=Options(folder=tmp_path / "run", quiet=True))
    assert run.metrics["accuracy"] > 0.97


def test_the_example_in_python_learns_too(capfd):
    run = runpy.run_path(str(EXAMPLES / "by_hand.py"))["main"]()
    assert run.metrics["accuracy"] > 0.95
    assert "% after 230 steps" in capfd.readouterr().out


def test_a_gan_by_hand_records_both_losses():
    run = runpy.run_path(str(EXAMPLES / "gan_by_hand.py"))["main"](epochs=1)
    assert {"loss/generator", "loss/discriminator"} <= set(run.events.latest)


def test_the_exported_digits_are_recognised(tmp_path, capfd):
    accuracy = runpy.run_path(str(EXAMPLES / "export_digits.py"))["main"](str(tmp_path / "run"), epochs=4)
    assert accuracy > 0.85 and "checked on a batch" in capfd.readouterr().out


@pytest.mark.thorough  # tests/sweep draws one, too
def test_a_sweep_is_drawn(tmp_path):
    pytest.importorskip("optuna", reason="etude sweep needs the extra [sweep]")
    page = runpy.run_path(str(EXAMPLES / "sweep_digits.py"))["main"](str(tmp_path / "sweep"), trials=2, epochs=1)
    assert "optim.lr" in Path(page).read_text()


def test_fine_tuning_starts_from_another_run(tmp_path):
    first = etude.train(EXAMPLES / "finetune.yaml", ["~hooks"], options=Options(folder=tmp_path / "first", quiet=True))
    second = etude.train(
        EXAMPLES / "finetune.yaml",
        ["train.epochs=1", f"init_from={tmp_path / 'first'}"],
        options=Options(folder=tmp_path / "second", quiet=True),
    )
    assert torch.equal(first.model.blocks[0][0].weight, second.model.blocks[0][0].weight)
    assert not torch.equal(first.model.blocks[1][0].weight, second.model.blocks[1][0].weight)
