"""A slip of the fingers in any key or name of any example is caught before training, nearly always with the cure.

Each slip must be an error of ``etude check``; at least 95 of 100 must be answered with the word that was there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from etude import dialects

from .mutations import errors, survey_slips

ROOT = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path for path in ROOT.glob("native/**/*") if path.suffix in (".yaml", ".yml", ".json", ".toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_slip_is_caught_and_nearly_every_one_with_the_right_word(path: Path) -> None:
    dialect, tree = dialects.read(str(path))
    assert errors(dialect, tree) == []
    survey = survey_slips(dialect, tree)
    assert survey.count > 50
    assert survey.missed == []
    assert len(survey.unhelpful) <= 0.05 * survey.count, "\n".join(survey.unhelpful)
