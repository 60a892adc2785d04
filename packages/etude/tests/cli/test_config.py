"""``etude config``: the resolved config, and where a value came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import main
from etude.config.formats.from_yaml import parse_value
from tests.places import REPOSITORY


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETUDE_SECRET", "s3cr3t-m4rk3r")
    Path("base.yaml").write_text("optim: {type: AdamW, lr: 0.1, betas: [0.9, 0.99]}\nwidth: 8\n")
    Path("a.yaml").write_text(
        "_base_: base.yaml\noptim:\n  lr: 0.2\nsizes: ['${width}', 10]\nlog: {api_key: abc, x: '${env:ETUDE_SECRET}'}\n"
    )


DIGITS = REPOSITORY / "examples" / "native" / "digits.yaml"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["config", *words]) == 0
    return capsys.readouterr().out


def test_the_whole_config_is_printed_merged_resolved_and_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "a.yaml", "width=3")
    assert parse_value(out, "output") == {
        "optim": {"type": "AdamW", "lr": 0.2, "betas": [0.9, 0.99]},
        "width": 3,
        "sizes": [3, 10],
        "log": {"api_key": "REDACTED", "x": "${env:ETUDE_SECRET}"},
    }
    assert "s3cr3t" not in out


def test_a_key_is_told_with_its_place_and_what_it_overrode(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "a.yaml", "optim.lr", "optim.lr=0.3").splitlines() == [
        "optim.lr: 0.3",
        "  from override 'optim.lr=0.3'",
        "  before: 0.2 from a.yaml:3",
        "  before: 0.1 from base.yaml:1",
    ]


def test_a_section_is_told_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "a.yaml", "optim").splitlines()
    assert lines[:2] == ["optim:", "  type: AdamW"]
    assert "  from a.yaml:2" in lines


def test_a_key_that_was_taken_away_tells_by_whom(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "a.yaml", "optim.lr", "~optim.lr").splitlines() == [
        "optim.lr is not set",
        "  before: (taken away) from override '~optim.lr'",
        "  before: 0.2 from a.yaml:3",
        "  before: 0.1 from base.yaml:1",
    ]


def test_a_secret_stays_hidden_also_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "a.yaml", "log.api_key", "log.x", "log.api_key=xyz")
    assert "abc" not in out.replace("api_key", "")
    assert "xyz" not in out
    assert "from override 'log.api_key=REDACTED'" in out
    assert "s3cr3t" not in out


def test_an_unknown_key_is_answered_with_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "a.yaml", "optim.rl"]) == 2
    assert "the config has no key optim.rl; did you mean 'optim.lr'?" in capsys.readouterr().err


def test_a_known_key_that_is_absent_needs_no_plus(capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.yaml").write_text("model: A\ntrain: {epochs: 1}\n")
    assert "compile: true\n  from override 'train.compile=true'" in told(
        capsys, "b.yaml", "train.compile=true", "train.compile"
    )
    new = ["train.compile.mode=default", "optim.betas=[0.8, 0.9]", "checkpoint.keep=2", "schedule.lr=Cosine"]
    new += ["model.dropout=0.1", "data.val.dataset.type=Digits", "data.val.dataset.split=val"]
    assert main(["check", str(DIGITS), *new]) == 0
    typos = ["train.compil=true", "optim.learning_rate=1", "model.drpout=0.1", "max_epochs=3", "extra.note=hello"]
    assert main(["check", str(DIGITS), *typos[:-1]]) == 2
    said = capsys.readouterr()
    for meant in ("'compile'?", "'lr'?", "'dropout'?", "write train.epochs"):
        assert meant in said.out + said.err
    assert main(["check", str(DIGITS), typos[-1]]) == 2, "nothing would find a misspelt key under extra"


def test_two_configs_are_compared_value_by_value(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.yaml").write_text("optim: {lr: 1, type: SGD}\n")
    Path("two.yaml").write_text("optim:\n  lr: 2\n  type: SGD\n  momentum: 0.9\n")
    assert told(capsys, "one.yaml", "--diff", "two.yaml").splitlines() == [
        "optim.lr", "  - 1  (one.yaml:1)", "  + 2  (two.yaml:2)", "optim.momentum", "  + 0.9  (two.yaml:4)",
    ]  # fmt: skip
    assert told(capsys, "--diff", "one.yaml", "two.yaml") == told(capsys, "one.yaml", "--diff", "two.yaml")
    assert "  - 5  (override 'optim.lr=5')\n  + 1" in told(capsys, "one.yaml", "optim.lr=5", "--diff", "one.yaml")
    assert told(capsys, "one.yaml", "--diff", "one.yaml") == "the two configs are equal\n"
