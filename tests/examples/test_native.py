from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

import etude
from etude.build import Options

EXAMPLES = Path(__file__).parents[2] / "examples" / "native"
SHORTER = {
    "digits.yaml": [],
    "characters.yaml": ["train.steps=12", "train.validate=6step", "checkpoint.every=6step", "log.every=4step", "+model.width=16", "data.train.batch_size=4", "schedule.lr.0.until=4step", "data.val.batch_size=256"],
    "gan/gan.yaml": ["train.epochs=2", "checkpoint.every=1ep", "log.every=20step"],
}  # fmt: skip


def test_every_example_is_run_here():
    assert {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml")} == set(SHORTER)


@pytest.mark.parametrize("name", SHORTER)
def test_an_example_trains_and_leaves_a_run_behind(name, tmp_path):
    run = etude.train(EXAMPLES / name, SHORTER[name], options=Options(folder=tmp_path / "run", quiet=True))
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
