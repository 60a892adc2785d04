"""What the command line decides is recorded with the run: its plan has it, comparisons and tables show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

import etude
from etude.data import Digits
from etude.debug_options import DebugOptions
from tests.cli.commands import CONFIG, Commands

FLAGS = {
    "--seed": ("3", "seed", 3),
    "--limit-batches": ("2", "limit_batches", 2),
    "--overfit": ("1", "overfit", 1),
    "--max-time": ("1h", "max_time", "3600s"),
    "--device": ("cpu", "device", "cpu"),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_is_in_the_plan_and_diff_and_runs_show_it(command: Commands, flag):
    given, key, value = FLAGS[flag]
    assert command("train", "c.yaml", "--folder", "runs/plain", "-q").code == 0
    assert command("train", "c.yaml", "--folder", "runs/flag", "-q", flag, given).code == 0
    assert yaml.safe_load(Path("runs/flag/plan.yaml").read_text())["train"] == {"epochs": 2, key: value}
    told = command("diff", "runs/plain", "runs/flag").out
    assert f"train.{key}: – → {value}" in told and "the same: plan" not in told
    assert json.loads(Path("runs/flag/status.json").read_text())["plan"][f"train.{key}"] == value
    assert key in command("runs").out
    # The plan is a config again, and trains the same.
    assert command("check", "runs/flag/plan.yaml").code == 0
    if flag in ("--seed", "--limit-batches"):
        assert command("train", "runs/flag/plan.yaml", "--folder", "runs/again", "-q").code == 0
        assert Path("runs/again/metrics.jsonl").read_bytes() == Path("runs/flag/metrics.jsonl").read_bytes()


def test_a_flag_that_says_what_the_config_says_is_no_difference(command: Commands):
    config = CONFIG.replace("epochs: 2", "epochs: 2, seed: 5")
    assert command("train", "s.yaml", "--folder", "a", "-q", s_yaml=config).code == 0
    assert command("train", "s.yaml", "--folder", "b", "-q", "--seed", "5").code == 0
    assert "no difference: plan" in command("diff", "a", "b").out


def test_a_flag_without_a_key_is_recorded_and_compared(command: Commands):
    config = CONFIG.replace("epochs: 2", "epochs: 2, nonfinite: skip")
    assert command("train", "n.yaml", "--folder", "a", "-q", n_yaml=config).code == 0
    assert command("train", "n.yaml", "--folder", "b", "-q", "--chaos", "nan@step=3").code == 0
    assert json.loads(Path("b/env.json").read_text())["flags"] == {"chaos": "nan@step=3"}
    assert "--chaos: – → nan@step=3" in command("diff", "a", "b").out
    Path("b/status.json").unlink()
    assert "--chaos: – → nan@step=3" in command("diff", "a", "b").out


def test_a_trial_in_python_is_recorded_too(workdir):
    Path("c.yaml").write_text(CONFIG)
    options = etude.Options(folder="run", quiet=True)
    etude.train("c.yaml", options=options, trial=DebugOptions(seed=4, limit_batches=1))
    assert yaml.safe_load(Path("run/plan.yaml").read_text())["train"] == {"epochs": 2, "seed": 4, "limit_batches": 1}


def test_a_test_measures_all_data_of_a_run_that_saw_a_part(command: Commands):
    """Batches of 90 of 360: the limit of the training is no limit of the measurement."""
    assert command("train", "c.yaml", "--folder", "run", "-q", "--limit-batches", "1").code == 0
    assert command("test", "run", "-q", "--out", "out.json").code == 0
    model = etude.load("run")
    images, labels = zip(*Digits("val"), strict=True)
    right = (model(torch.stack(images)).argmax(1) == torch.tensor(labels)).double().mean()
    assert json.loads(Path("out.json").read_text())["accuracy"] == pytest.approx(float(right))
