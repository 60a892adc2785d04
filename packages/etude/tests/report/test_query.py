from __future__ import annotations

from pathlib import Path

import pytest

from etude.errors import UserError
from etude.report.notes import Notes
from etude.report.query import matching
from etude.report.runs import RunInfo, changed_keys

NONE = Notes()


def run(name, state="finished", accuracy=0.5, notes=NONE, **plan):
    keys = {key.replace("_", "."): value for key, value in plan.items()}
    best = {"val/accuracy": (accuracy, 3)}
    return RunInfo(Path(name), name, state, 10, 10, None, 5.0, {}, best, plan=keys, notes=notes)


RUNS = [
    run("digits/a", accuracy=0.97, optim_lr=0.1, model_type="MLP"),
    run("digits/b", accuracy=0.9, optim_lr="1e-4", model_type="MLP"),
    run("words/c", state="failed", accuracy=0.2, optim_lr=0.1, model_type="GRU"),
]


def test_tags_and_notes_are_found():
    said = run("d", notes=Notes(("baseline",), "the old crop", archived=True))
    for text in ("tags=base*", "baseline", "note~old", "archived"):
        assert matching(text, [*RUNS, said], {}) == [said]


def names(text):
    return [one.name for one in matching(text, RUNS, changed_keys(RUNS))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ["digits/a", "digits/b", "words/c"]),
        ("digits", ["digits/a", "digits/b"]),
        ("DIGITS/?", ["digits/a", "digits/b"]),
        ("accuracy>0.95", ["digits/a"]),
        ("val/accuracy<=.9 lr>1e-3", ["words/c"]),
        ("optim.lr=1e-4", ["digits/b"]),
        ("optim.lr!=0.1", ["digits/b"]),
        ("type=m*", ["digits/a", "digits/b"]),
        ("name~ORD", ["words/c"]),
        ("-failed -digits/a", ["digits/b"]),
        ("state=failed", ["words/c"]),
        ('"digits', ["digits/a", "digits/b"]),
    ],
)
def test_terms_all_have_to_hold(text, found):
    assert names(text) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("acuracy>1", "did you mean 'accuracy'"),
        ("lr>x", "needs a number"),
    ],
)
def test_a_wrong_filter_says_what_is_wrong(text, says):
    with pytest.raises(UserError, match=says):
        names(text)


def test_the_end_of_two_keys_is_ambiguous():
    runs = [run("x", a_lr=1, b_lr=2)]
    with pytest.raises(UserError, match=r"may mean a\.lr, b\.lr"):
        matching("lr=1", runs, changed_keys(runs))
