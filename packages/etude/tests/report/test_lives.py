"""Where the time of a run went, over all its lives: real kills, and by hand what no test can wait for."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from etude.cli import main
from etude.report.lives import COUNTS, DOWN, REPEATED, START, account, lives_of

CONFIG = """
imports: [own.py]
model: {type: MLP, sizes: [64, 16, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Slow}, batch_size: 32, shuffle: true}}
optim: {type: SGD, lr: 0.1}
train: {steps: 40}
checkpoint: {every: 8step}
log: {every: 4step}
"""
OWN = """
import time
from etude import DATASETS
from etude.data.datasets.digits import Digits

@DATASETS.register
class Slow(Digits):
    def __getitem__(self, index):
        time.sleep(0.0005)
        return super().__getitem__(index)
"""


def train(*words: str) -> int:
    command = [sys.executable, "-m", "etude", "train", "config.yaml", "-q", "--folder", "run", *words]
    return subprocess.run(command, capture_output=True, text=True).returncode


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    Path("config.yaml").write_text(CONFIG)


def test_the_account_of_a_killed_run_adds_up_to_what_the_clock_says(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.time()
    assert train("--chaos", "kill@step=14") == -9
    time.sleep(1.0)
    assert train("--resume", "--chaos", "kill@step=21") == -9
    assert train("--resume", "--chaos", "kill@step=22") == -9
    assert train("--resume") == 0
    whole = time.time() - began
    lives = lives_of(Path("run"))
    assert [(life.first, life.state) for life in lives] == [
        (0, "killed"),
        (8, "killed"),
        (16, "killed"),
        (16, "finished"),
    ]
    assert [life.last for life in lives] == [13, 20, 21, 40]
    assert [life.lost for life in lives] == [5, 4, 5, 0]
    spent = account(lives)
    # A process has begun before this one could read the clock, and ended before it was told so.
    assert sum(spent.values()) == pytest.approx(lives[-1].ended - lives[0].began, rel=1e-6)
    assert whole * 0.8 < sum(spent.values()) <= whole + 0.1
    assert spent[DOWN] >= 1.0 and spent[REPEATED] > 0 and spent[START] > 0 and spent["data"] > 0
    assert main(["show", "run", "--time"]) == 0
    shown = capsys.readouterr().out
    assert "4 lives" in shown and "goodput" in shown and "steps 0 to 13, killed, 5 steps done again" in shown
    shares = [float(line.split("%")[0].split()[-1]) for line in shown.splitlines() if " s " in line and "%" in line]
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_a_run_that_is_restarted_forgets_its_lives_and_one_that_is_over_keeps_them(here: None) -> None:
    assert train("--chaos", "kill@step=14") == -9
    assert train("--restart", "train.steps=12") == 0
    assert [(life.first, life.last, life.state) for life in lives_of(Path("run"))] == [(0, 12, "finished")]
    before = account(lives_of(Path("run")))
    assert train("--resume", "train.steps=12") == 0
    assert account(lives_of(Path("run"))) == before
    assert train("--resume", "train.steps=16") == 0
    assert lives_of(Path("run"))[-1].last == 16


def written(folder: Path, *lives: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "lives.jsonl").write_text("".join(json.dumps(life) + "\n" for life in lives[:-1]))
    (folder / "status.json").write_text(json.dumps({"state": "finished", "life": lives[-1]}))
    return folder


def life(began: float, elapsed: float, first: int, last: int, state: str = "finished", **more: Any) -> dict[str, Any]:
    own = {"began": began, "elapsed": elapsed, "from": first, "to": last, "state": state}
    return own | {"time": {"start": 1.0, "forward/backward": elapsed - 1.0}} | more


def test_a_loss_that_goes_back_over_several_lives_counts_in_each(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "run",
        life(1000, 11, 0, 10, "killed", seen=1011.0),
        life(1100, 6, 10, 15, "killed", seen=1106.0),
        life(1200, 16, 5, 20),
    )
    lives = lives_of(folder)
    assert [(one.kept, one.lost) for one in lives] == [(5, 5), (0, 5), (15, 0)]
    spent = account(lives)
    assert spent == pytest.approx({COUNTS: 20.0, REPEATED: 10.0, START: 3.0, DOWN: 183.0})


def test_the_end_of_a_killed_life_is_shared_out_and_two_clocks_do_not_make_more_than_all(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "run",
        life(1000, 11, 0, 10, "killed", seen=1021.0, time={"start": 1.0, "update": 5.0, "data": 5.0}),
        life(1015, 11, 10, 20),  # another machine, whose clock is late
    )
    spent = account(lives_of(folder))
    assert spent == pytest.approx({COUNTS: 20.0, "data": 10.0, START: 2.0})


def test_what_somebody_else_wrote_there_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", life(1000, 11, 0, 10), life(1011, 5, 10, 12))
    with (folder / "lives.jsonl").open("a") as file:
        file.write('{"began": "x"}\n[]\nnull\n{"began": 1e300, "elapsed": -1, "time": {}}\n{"cut": ')
    assert len(lives_of(folder)) == 2
    (folder / "status.json").write_text('{"life": 3}')
    assert len(lives_of(folder)) == 1
    (folder / "lives.jsonl").unlink()
    assert main(["show", str(folder), "--time"]) == 0
    assert "nothing is known of where the time went" in capsys.readouterr().out
