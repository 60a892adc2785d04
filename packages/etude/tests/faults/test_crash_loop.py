"""The history that tells a run which always dies at the same step; test_scenes has such a run, in real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.checkpoint.attempts import NAME, Attempts
from etude.errors import EtudeError


def lives(folder: Path, *ends: tuple[int, int]) -> Attempts:
    """A history: each life begins after so many steps and fails after so many."""
    for begins, fails in ends:
        attempts = Attempts(folder, say=print)
        attempts.begin(begins)
        attempts.failed(fails, ValueError("no"))
    return Attempts(folder, say=print)


def test_failures_at_different_steps_are_no_loop(tmp_path: Path) -> None:
    lives(tmp_path, (0, 5), (0, 6), (0, 5)).begin(0)


def test_a_new_checkpoint_counts_as_progress(tmp_path: Path) -> None:
    attempts = lives(tmp_path, (0, 5), (0, 5), (0, 5))
    attempts.begin(4)
    assert [life["base"] for life in json.loads((tmp_path / NAME).read_text())["lives"]] == [4]
    Attempts(tmp_path, say=print).begin(8)


def test_the_checkpoint_that_the_first_life_left_counts_it(tmp_path: Path) -> None:
    with pytest.raises(EtudeError, match="3 failures at step 6"):
        lives(tmp_path, (0, 5), (4, 5), (4, 5)).begin(4)


def test_a_death_without_a_word_is_placed_by_the_steps_noted_before_it(tmp_path: Path) -> None:
    for last in (9, 10, 10, 10):
        attempts = Attempts(tmp_path, say=print)
        attempts.begin(0)  # 10, 11 and 11 are not the same
        for step in range(1, last + 1):
            attempts.note(step)
    assert Attempts(tmp_path, say=print).reached() == 10
    with pytest.raises(EtudeError, match="3 failures at step 11"):
        Attempts(tmp_path, say=print).begin(0)


def test_a_file_that_is_no_history_is_forgotten(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"lives": 3, "how": "", "done": "x"}'):
        (tmp_path / NAME).write_text(text)
        Attempts(tmp_path, say=print).begin(0)
        assert json.loads((tmp_path / NAME).read_text())["lives"] == []


def test_where_nothing_can_be_written_training_goes_on(tmp_path: Path) -> None:
    lines: list[str] = []
    attempts = Attempts(tmp_path / "nowhere", say=lines.append)
    attempts.begin(0)
    attempts.note(1)
    attempts.failed(1, ValueError("no"))
    attempts.clear()
    assert "a crash loop would not be noticed" in lines[0]
