"""Repeated seeds and folds, and what people say about runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from etude.checkpoint.storage.lock import Lock
from etude.data import TensorData
from etude.data.datasets.several import Fold
from etude.errors import ConfigError
from etude.report.means import mean_and_deviation
from etude.report.runs import summarise
from tests.cli.commands import CONFIG, Commands


@pytest.fixture
def command(workdir, capfd):
    return Commands(capfd)


def results(folder):
    return dict(summarise(Path(folder)).last)


def test_seeds_and_folds_are_ordinary_runs_with_mean_and_deviation(command):
    said = command("train", "c.yaml", "--folds", "2", "-q", "train.epochs=1", "--folder", "folds", c_yaml=CONFIG)
    assert said.code == 0, said.err
    runs = [results(f"folds/fold-{fold}") for fold in (0, 1)]
    mean, deviation = mean_and_deviation([run["val/accuracy"] for run in runs])
    assert f"{mean:.4g} ± {deviation:.2g}" in said.out and "fold-" in said.out
    listed = command("runs", "folds", "--mean")
    assert listed.out.splitlines()[0].split() == ["runs", "result", "last", "best"] and "±" in listed.out
    again = command("train", "c.yaml", "--folds", "2", "-q", "train.epochs=1", "--folder", "folds", "--resume")
    assert again.code == 0 and [results(f"folds/fold-{fold}") for fold in (0, 1)] == runs
    assert command("test", "folds/fold-0", "-q").code == 0
    seeds = command("train", "c.yaml", "--seeds", "2", "-q", "train.epochs=1", "+train.seed=4", "--folder", "seeds")
    assert seeds.code == 0 and sorted(path.name for path in Path("seeds").iterdir()) == ["seed-4", "seed-5"]
    assert results("seeds/seed-4") != results("seeds/seed-5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1"], "--seeds 1: one run needs no --seeds"),
        (["--seeds", "2", "--folds", "2"], "repeat one of them at a time"),
        (["--seeds", "2", "--seed", "3"], "leave --seed out"),
        (["--folds", "2", "--resume"], "which runs? Pass their --folder"),
        (["--folds", "2", "optim.lr=fast"], "lr must be"),
        (["--folds", "5000"], "1437 samples cannot be cut into 5000 parts"),
    ],
)
def test_repetitions_that_make_no_sense_are_refused(command, words, message):
    said = command("train", "c.yaml", "-q", *words, c_yaml=CONFIG)
    assert said.code == 2 and message in said.err, said.err


def test_folds_hold_every_sample_out_once():
    data = TensorData(torch.arange(11))
    held = [Fold(data, 3, fold, held_out=True) for fold in range(3)]
    assert sorted(int(part[i]) for part in held for i in range(len(part))) == list(range(11))
    for fold, part in enumerate(held):
        training = Fold(data, 3, fold)
        assert not set(training.indices) & set(part.indices) and len(training) + len(part) == 11
    assert len({part.fingerprint() for part in held}) == 3
    for fold, folds in ((3, 3), (-1, 3), (0, 1)):
        with pytest.raises(ConfigError, match="the first of at least two is 0"):
            Fold(data, folds, fold)


def test_runs_are_tagged_noted_archived_and_deleted(command):
    for name in ("a", "b", "c"):
        assert command("train", "c.yaml", "-q", "train.epochs=1", "--folder", f"runs/{name}", c_yaml=CONFIG).code == 0
    assert "[good] more dropout" in command("runs", "runs/a", "--tag", "good", "--note", "more dropout").out
    assert command("runs", "--tagged", "good", "--json").out.count('"name"') == 1
    found = json.loads(command("runs", "--tagged", "good", "--json").out)[0]
    assert found["name"] == "a" and found["tags"] == ["good"] and found["note"] == "more dropout"
    bad = command("runs", "runs/a", "--tag", "two words")
    assert bad.code == 2 and "a tag has no spaces" in bad.err
    assert command("runs", "runs/b", "--archive").code == 0
    assert "b " not in command("runs").out and "[archived]" in command("runs", "--archived").out
    assert (
        command("runs", "runs/a", "--untag", "good", "--note", "").code == 0 and not Path("runs/a/notes.json").exists()
    )
    refused = command("runs", "runs/c", "--delete")
    assert refused.code == 2 and "pass --yes" in refused.err and Path("runs/c").exists()
    Path("runs/link").symlink_to("c")
    said = command("runs", "runs/link", "--delete", "--yes")
    assert said.code == 2 and "is a link" in said.err and Path("runs/c").exists()
    Path("runs/link").unlink()
    assert command("runs", "runs/c", "--delete", "--yes").code == 0 and not Path("runs/c").exists()
    assert sorted(path.name for path in Path("runs").iterdir()) == ["a", "b"]


def test_a_run_that_a_process_trains_is_not_deleted(command):
    Path("c.yaml").write_text(CONFIG)
    words = [sys.executable, "-m", "etude", "train", "c.yaml", "-q", "train.epochs=100000", "--folder", "runs/live"]
    process = subprocess.Popen(words)
    try:
        until = time.monotonic() + 120
        while not list(Path("runs/live/checkpoints").glob("step-*")) and time.monotonic() < until:
            time.sleep(0.1)
        said = command("runs", "runs/live", "--delete", "--yes")
        assert said.code == 2 and "running; it was not deleted" in said.err and Path("runs/live/plan.yaml").exists()
    finally:
        process.kill()
        process.wait()
    with Lock("runs/live"):  # as a process of a machine that shares the disk holds it
        said = command("runs", "runs/live", "--delete", "--yes")
    assert said.code == 2 and "in use by" in said.err and Path("runs/live/plan.yaml").exists()
    assert command("runs", "runs/live", "--delete", "--yes").code == 0 and not Path("runs/live").exists()
