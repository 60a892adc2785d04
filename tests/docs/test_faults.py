"""The table of faults names tests and scenes that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.places import TEST_PATHS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


def _files(name: str) -> list[Path]:
    """Return the files of a test's name, which is below the ``tests`` of some package."""
    return [file for tests in TEST_PATHS if (file := tests / "tests" / f"{name}.py").is_file()]


def test_every_test_that_the_table_names_is_there() -> None:
    named = re.findall(r"`([\w/]+)::(\w+)`", TEXT)
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not any(f"def {name}(" in test.read_text(encoding="utf-8") for test in _files(file))
    ]
    assert len(named) > 60 and missing == []


def test_every_scene_that_the_table_names_is_there() -> None:
    scenes = (ROOT / "packages/etude/tests/faults/scenes.py").read_text(encoding="utf-8")
    named = re.findall(r"scene: `([^`]+)`", TEXT)
    assert len(named) > 20 and [name for name in named if f'"{name}"' not in scenes] == []


def test_no_row_is_left_out() -> None:
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    assert rows == {*range(1, 81)}
