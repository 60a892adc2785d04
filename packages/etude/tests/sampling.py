"""``make test`` draws samples where ``make test-all``, which sets ``ETUDE_TEST_ALL``, tries everything.

A matrix runs the cases that differ most (:func:`sample`). A whole test that costs much and has a cheaper one of its kind
beside it is marked ``@pytest.mark.thorough``, which leaves it to ``make test-all``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

ALL = bool(os.environ.get("ETUDE_TEST_ALL"))
Case = TypeVar("Case")


def sample(cases: Iterable[Case], places: Sequence[int]) -> list[Case]:
    """Return all cases of a test, or only those at ``places``: the ones that differ most."""
    known = list(cases)
    return known if ALL else [known[place] for place in places]


def examples(many: int) -> int:
    """Return how many examples hypothesis draws for a test: ``many``, or a third of them, other ones in every run."""
    return many if ALL else max(1, many // 3)
