"""Every recorded file is replayed by somebody."""

from __future__ import annotations

import importlib

import pytest

from tests.golden import goldens
from tests.places import REPOSITORY

FILES = sorted(path for dialect in goldens.FOLDERS for path in goldens.folder(dialect).glob("*.json"))


@pytest.fixture(scope="module")
def claims() -> set[tuple[str, str]]:
    for path in sorted(REPOSITORY.glob("packages/*/tests/golden/test_*.py")):
        importlib.import_module(f"tests.golden.{path.stem}")
    return goldens.CLAIMS


@pytest.mark.parametrize("path", [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in FILES])
def test_a_replayer_knows_the_file(path, claims: set[tuple[str, str]]) -> None:
    assert (path.parent.name, path.stem) in claims, f"no replayer in tests/golden replays {path.name}"


def test_a_word_that_a_replayer_does_not_know_is_reported_and_one_that_it_asks_for_is_not() -> None:
    words = {"id": "a", "loop": 1, "prefix": 2, "note": "x", "new": 3, "odd": 4, "seen": "in a release"}
    case = goldens.Case(words, known={"loop"})
    assert case.get("prefix") == 2 and "odd" in case
    assert case.unknown() == ["new", "seen"] and case.unread() == ["new"], "a text may be a remark"
    assert goldens.options_for(lambda new=0: None, case) == {"new": 3} and case.unread() == []
