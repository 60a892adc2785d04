"""BLEU counts as nltk does, without needing it."""

from __future__ import annotations

import pytest

from libai.evaluation import BLEUEvaluator


def score(*batches: tuple[dict[str, object], dict[str, object]]) -> float:
    evaluator = BLEUEvaluator()
    for inputs, outputs in batches:
        evaluator.process(inputs, outputs)
    return evaluator.evaluate()["bleu_score"]


def test_a_corpus_is_scored_as_nltk_scores_it() -> None:
    hypothesis = [
        "It",
        "is",
        "a",
        "guide",
        "to",
        "action",
        "which",
        "ensures",
        "that",
        "the",
        "military",
        "always",
        "obeys",
        "the",
        "commands",
        "of",
        "the",
        "party",
    ]
    references = [
        [
            "It",
            "is",
            "a",
            "guide",
            "to",
            "action",
            "that",
            "ensures",
            "that",
            "the",
            "military",
            "will",
            "forever",
            "heed",
            "Party",
            "commands",
        ],
        [
            "It",
            "is",
            "the",
            "guiding",
            "principle",
            "which",
            "guarantees",
            "the",
            "military",
            "forces",
            "always",
            "being",
            "under",
            "the",
            "command",
            "of",
            "the",
            "Party",
        ],
        [
            "It",
            "is",
            "the",
            "practical",
            "guide",
            "for",
            "the",
            "army",
            "always",
            "to",
            "heed",
            "the",
            "directions",
            "of",
            "the",
            "party",
        ],
    ]
    other = ["he", "read", "the", "book", "because", "he", "was", "interested", "in", "world", "history"]
    its_reference = ["he", "was", "interested", "in", "world", "history", "because", "he", "read", "the", "book"]
    both = (
        ({"reference": references}, {"candidate": hypothesis}),
        ({"reference": [its_reference]}, {"candidate": other}),
    )
    assert score(both[0]) == pytest.approx(0.5045666840058485)
    assert score(*both) == pytest.approx(0.5920778868801042)


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        (["a b c d e"], ["a b c d e"], 1.0),
        ([["a", "b", "c", "d"]], [["a", "b", "c", "d"]], 1.0),
        (["a", "b", "c", "d"], [["x"], ["a", "b", "c", "d"]], 1.0),
        (["x y z"], ["a b c"], 0.0),
        (["a b c d"], ["a b c d e f g h"], pytest.approx(0.36787944117144233)),
        ([""], ["a b"], 0.0),
    ],
)
def test_texts_and_tokens_in_batches(candidate: object, reference: object, expected: float) -> None:
    assert score(({"reference": reference}, {"candidate": candidate})) == expected
    assert score(({}, {"candidate": candidate, "reference": reference})) == expected
