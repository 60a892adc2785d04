"""A run that always fails at the same step is given up."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etude.checkpoint.attempts import LIMIT, NAME, Attempts
from etude.errors import EtudeError


def attempt(step: int, fails_at: int | None = None, *, noted: int = 0, again: bool = False) -> Attempts:
    said: list[str] = []
    made = Attempts(".", say=said.append)
    made.begin(step, again=again)
    if noted:
        made.note(noted)
    if fails_at is not None:
        made.failed(fails_at, ValueError("no \x1b[31m" + "x" * 400))
    assert not said
    return made


def test_after_three_failures_at_one_step_the_next_attempt_is_refused_until_it_is_asked_for() -> None:
    for _ in range(LIMIT):
        attempt(4, fails_at=6)
    with pytest.raises(EtudeError, match=f"^{LIMIT} failures at step 7, giving up; see") as caught:
        attempt(4)
    assert "ValueError: no" in str(caught.value) and "every start from step 4 ends there" in str(caught.value)
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 800
    assert "log.txt" not in str(caught.value)
    Path("log.txt").touch()
    with pytest.raises(EtudeError, match=r"log\.txt"):
        attempt(4)
    attempt(4, fails_at=6, again=True)
    attempt(4, fails_at=6)


def test_other_steps_and_other_beginnings_leave_hope() -> None:
    for fails_at in (6, 6, 7):
        attempt(4, fails_at=fails_at)
    attempt(4, fails_at=6)
    attempt(5, fails_at=6)
    attempt(5)


def test_a_killed_attempt_counts_with_the_steps_that_it_noted() -> None:
    for _ in range(LIMIT):
        attempt(4, noted=8)
    assert Attempts(".", say=print).reached() == 8
    with pytest.raises(EtudeError, match="failures at step 9") as caught:
        attempt(4)
    assert "it ended without a message" in str(caught.value)


def test_an_attempt_that_ends_well_is_forgotten_with_all_before_it() -> None:
    attempt(4, fails_at=6)
    Path(f".{NAME}.tmp-1").touch()
    made = attempt(4, noted=5)
    assert not Path(f".{NAME}.tmp-1").exists() and json.loads(Path(NAME).read_text())["done"] == 5
    made.clear()
    assert not Path(NAME).exists() and made.reached() == 0
    made.note(7)
    assert not Path(NAME).exists()


@pytest.mark.parametrize("content", ["", "[]", '{"lives": 3}', '{"done": null}'])
def test_a_damaged_record_is_begun_anew(content: str) -> None:
    Path(NAME).write_text(content)
    assert Attempts(".", say=print).reached() == 0
    assert json.loads((attempt(2), Path(NAME).read_text())[1]) | {"how": ""} == {"lives": [], "how": "", "done": 2}


def test_a_record_that_cannot_be_written_is_reported_and_stops_nothing() -> None:
    said: list[str] = []
    made = Attempts("nowhere", say=said.append)
    made.begin(0)
    made.note(1)
    made.clear()
    assert len(said) == 1 and said[0].startswith(f"{NAME} cannot be written")


def test_every_step_is_noted_in_the_same_place() -> None:
    made = attempt(4)
    for step in (5, 12345, 7):
        made.note(step)
        assert made.reached() == step
    made.failed(7, ValueError("x"))
    made.note(9)
    made.failed(8, ValueError("y"))
    assert json.loads(Path(NAME).read_text()) == {"lives": [], "how": "ValueError: y", "done": 8}
    assert Path(NAME).stat().st_mode & 0o777 == 0o600
    assert json.loads((attempt(4), Path(NAME).read_text())[1])["lives"] == [
        {"base": 4, "step": 9, "how": "ValueError: y"}
    ]


def test_a_file_that_is_not_there_any_more_is_not_noted_in() -> None:
    made = attempt(4)
    Path(NAME).unlink()
    made.note(5)
    assert not Path(NAME).exists() and made.reached() == 0


def test_no_more_attempts_are_remembered_than_decide() -> None:
    for number in range(LIMIT + 3):
        attempt(4, fails_at=number)
    attempt(4)
    assert [life["step"] for life in json.loads(Path(NAME).read_text())["lives"]] == [4, 5, 6][-LIMIT:]


def test_the_last_failure_is_the_one_that_is_told() -> None:
    for word in ("one", "two", "three"):
        made = attempt(4)
        made.failed(6, ValueError(word))
    with pytest.raises(EtudeError, match="the last one: ValueError: three"):
        attempt(4)


def test_nothing_is_noted_before_an_attempt_and_after_it(capfd: pytest.CaptureFixture[str]) -> None:
    made = Attempts(".", say=print)
    made.note(5), made.clear()
    os.fstat(1)
    made.begin(0)
    made.clear(), made.note(7), made.clear()
    os.fstat(1)
    assert capfd.readouterr().out == "" and not Path(NAME).exists()
