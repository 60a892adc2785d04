"""A slip of the fingers in any key or name of any example is caught before training, nearly always with the cure.

Each slip must be an error of ``etude check``; at least 95 of 100 must be answered with the word that was there.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from etude import compat, dialects
from etude.config.formats.from_python import assigned
from tests.places import EXAMPLES
from tests.sampling import sample

from .mutations import ALL, Survey, errors, survey_slips

ROOT = EXAMPLES
EXAMPLES = sorted(path for path in ROOT.glob("native/**/*") if path.suffix in (".yaml", ".yml", ".json", ".toml"))


def configs_of(dialect: str) -> list[Path]:
    """Files of a dialect's examples that are configs: they assign a model, or build on a base that does."""
    found = []
    for path in sorted(ROOT.glob(f"{dialect}/*")):
        is_module = path.suffix == ".py" and not {"model", "_base_"} & set(assigned(ast.parse(path.read_text())))
        if path.suffix in (".py", ".yaml") and not is_module:
            found.append(path)
    return found


#: Keys whose values are names of components, by dialect; a lazy call names its target in Python.
NAMES = {"mmcv1": ("type",), "mmengine": ("type",), "libai": (), "mcquic": ("key",)}
FOREIGN = [(dialect, path) for dialect in NAMES for path in sample(configs_of(dialect), (0,))]


def assert_all_are_caught(survey: Survey) -> None:
    assert survey.count > (50 if ALL else 5)
    assert survey.missed == []
    # In a small sample, one answer without the right word is more than 5 %.
    assert len(survey.unhelpful) <= max(0.05 * survey.count, 0 if ALL else 2), "\n".join(survey.unhelpful)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_slip_is_caught_and_nearly_every_one_with_the_right_word(path: Path) -> None:
    dialect, tree = dialects.read(str(path))
    assert errors(dialect, tree) == []
    assert_all_are_caught(survey_slips(dialect, tree))


@pytest.mark.parametrize(("dialect", "path"), FOREIGN, ids=lambda value: getattr(value, "stem", value))
def test_so_it_is_in_the_words_of_other_systems(dialect: str, path: Path) -> None:
    compat.install()
    spoken, tree = dialects.read(str(path))
    assert spoken.name == dialect
    assert errors(spoken, tree) == []
    lowering = spoken.lowering()
    known = getattr(lowering, "KNOWN_KEYS", getattr(lowering, "NAMESPACES", ()))
    assert_all_are_caught(survey_slips(spoken, tree, names=NAMES[dialect], known=known))
