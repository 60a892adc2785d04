"""``etude sweep``: the same config with many values, each trial an ordinary run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="etude sweep needs the extra [sweep]")

from etude.cli import main
from etude.errors import ConfigError
from etude.report.records import Records
from etude.sweep.space import parse_space
from etude.sweep.study import evaluations

CONFIG = """
name: small
model: {type: MLP, sizes: [64, 16, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 256}
  val: {dataset: {type: Digits, split: val}, batch_size: 512}
optim: {type: SGD, lr: 0.1}
train: {epochs: 2, threads: 1}
metrics: [Accuracy]
checkpoint: {every: 1ep, best: accuracy}
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG)
    return path


def recorded(trial: Path) -> list[tuple[int, float]]:
    records = Records(trial)
    records.update()
    return evaluations(records, "accuracy")


def sweep(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etude", "sweep", "small.yaml", *words], capture_output=True, text=True
    )


def test_a_grid_trains_every_combination_and_names_the_best(tmp_path: Path) -> None:
    done = sweep("optim.lr=1e-5,0.5", "train.epochs=1", "--jobs", "2", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [one["state"] for one in results] == ["complete", "complete"]
    assert results[0]["overrides"] == ["optim.lr=0.5"]
    assert results[0]["value"] > results[1]["value"]
    values = [value for _, value in recorded(Path(results[0]["folder"]))]
    assert results[0]["value"] == max(values)
    assert main(["report", "runs/small/sweep", "-o", "sweep.html"]) == 0
    page = Path("sweep.html").read_text()
    assert "trials in order" in page and "<td>optim.lr=0.5</td>" in page and "<script src=" not in page
    again = sweep("optim.lr=1e-5,0.5", "train.epochs=1", "--json")
    assert json.loads(again.stdout) == results, "a finished sweep is not trained again"
    other = sweep("optim.lr=1e-5,0.6", "train.epochs=1")
    assert other.returncode == 2
    assert "holds another sweep: space was" in other.stderr


SLOW = """
import os, time

def slow(run):
    if run.epoch > 0 and not os.path.exists("go"):
        time.sleep(0.2)
"""


@pytest.mark.thorough  # each trial imports torch anew; the grid below trains several
def test_a_sweep_that_was_stopped_goes_on_with_its_trials(tmp_path: Path, config: Path) -> None:
    """After its first epoch the first trial takes its time, until there is a file ``go``."""
    (tmp_path / "slow.py").write_text(SLOW)
    config.write_text(f"{CONFIG}imports: [slow.py]\nhooks: [{{type: slow.slow, point: after_step}}]\n")
    words = ["optim.lr=0.1,0.2", "train.epochs=20", "--no-prune"]
    command = [sys.executable, "-m", "etude", "sweep", "small.yaml", *words]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    trial = tmp_path / "runs/small/sweep/trial-000"
    while not recorded(trial):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGTERM)
    out, err = first.communicate()
    assert (first.returncode, "the same command resumes it" in out) == (143, True), err
    before = len(recorded(trial))
    assert 0 < before < 20
    Path("go").touch()
    again = sweep(*words, "--trials", "1")
    assert again.returncode == 0, again.stderr
    assert "resuming 1 trial that was cut off" in again.stdout
    assert "resumed from step" in (tmp_path / "runs/small/sweep/trial-000/log.txt").read_text()
    assert len(recorded(trial)) == 20


@pytest.mark.thorough  # each trial of a sweep imports torch anew
def test_a_sweep_ends_when_trials_bring_nothing_better(tmp_path: Path) -> None:
    done = sweep("optim.lr=0.5,1e-6,1e-7,1e-8", "train.epochs=1", "--patience", "1", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "1 trial in a row brought nothing better" in done.stdout
    assert sum(line.startswith("trial   ") for line in done.stdout.splitlines()) < 4


def test_a_config_that_is_wrong_ends_the_sweep_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "small.yaml", "optim.lr=0.1,0.2", "optim.momentun=0.9"]) == 2
    assert main(["sweep", "small.yaml", "optim.momentum=0,-2"]) == 2
    assert "'optim.momentum=-2': momentum is -2" in capfd.readouterr().err
    assert main(["sweep", "small.yaml", "optim.lr=0.1,0.2", "optim.weight_decai=0..1"]) == 2
    assert "did you mean 'weight_decay'?" in capfd.readouterr().err
    assert main(["sweep", "small.yaml", "optim.lr=0.1,0.2", "--metric", "acuracy"]) == 2
    assert "did you mean 'accuracy'?" in capfd.readouterr().err
    assert not Path("runs").exists(), "a mistake leaves no sweep behind that the next one would meet"
    assert main(["sweep", "small.yaml", "optim.lr=0.1"]) == 2
    assert "there is nothing to search" in capfd.readouterr().err
    assert main(["sweep", "small.yaml", "optim.lr=0.1..0.2", "--sampler", "grid"]) == 2


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("a=2..1", "the range is empty"),
        ("a=1e-4...1e-2", "a range has two dots"),
        ("a=0..1:log", "needs numbers above zero"),
        ("a=1..2:lin", "no scale is called 'lin'"),
        ("a=x..y", "goes from one number to another"),
    ],
)
def test_a_space_that_cannot_be_is_refused(word: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_space([word])


@pytest.mark.thorough
def test_a_random_sweep_that_was_killed_draws_new_values_and_prunes(tmp_path: Path) -> None:
    words = ["optim.lr=1e-6..1:log", "--sampler", "random", "--seed", "43", "--trials", "5"]
    command = [sys.executable, "-m", "etude", "sweep", "small.yaml", *words, "train.epochs=4"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not recorded(tmp_path / "runs/small/sweep/trial-000"):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    twice = sweep(*words, "train.epochs=4")
    assert twice.returncode == 2 and "in use by pid" in twice.stderr
    first.kill()  # the trial it had started lives on
    first.communicate()
    done = sweep(*words, "train.epochs=4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)
    assert len({one["overrides"][0] for one in results}) == len(results) == 5
    assert {one["state"] for one in results} == {"complete", "pruned"}
    assert main(["report", "runs/small/sweep", "-o", "sweep.html"]) == 0
    assert "pruned" in Path("sweep.html").read_text()
