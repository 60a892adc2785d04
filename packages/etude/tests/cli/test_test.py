"""``etude test CONFIG CHECKPOINT``: the results that training saw are those of the saved weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import CONFIG, Commands


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    return Commands(capfd)


def last_row(folder: str) -> dict[str, float]:
    rows = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return next(row for row in reversed(rows) if "accuracy" in row)


@pytest.mark.parametrize("hooks", ["", "hooks: [{type: EMA, momentum: 0.1}]\n"], ids=["weights", "average"])
def test_the_last_evaluation_is_found_again(command: Commands, hooks: str) -> None:
    assert command("train", "c.yaml", "--folder", "run", c_yaml=CONFIG + hooks).code == 0
    said = command("test", "c.yaml", "run", "--out", "results.json")
    assert said.code == 0
    results, row = json.loads(Path("results.json").read_text()), last_row("run")
    assert {name: row[name] for name in results} == results
    assert f"accuracy  {results['accuracy']:.6g}\n" in said.out


def test_what_is_not_there_is_told(command: Commands) -> None:
    assert command("train", "c.yaml", "--folder", "run", "-q", c_yaml=CONFIG).code == 0
    nowhere = command("test", "c.yaml", "nowhere")
    assert (nowhere.code, "nowhere: no such file or checkpoint" in nowhere.err) == (2, True)
    other = command("test", "c.yaml", "run", "--split", "vall")
    assert (other.code, "the config has no vall data; did you mean 'val'?" in other.err) == (2, True)
    changed = command("test", "c.yaml", "run", "model.sizes=[64, 8, 10]")
    assert changed.code in (2, 7) and "Traceback" not in changed.err
