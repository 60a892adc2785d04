"""BLEU of a corpus, as nltk counts it: n-grams up to four with equal weights, and a penalty for brevity."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence

Tokens = Sequence[str]
_ORDERS = (1, 2, 3, 4)


def corpus_bleu(references: Sequence[Sequence[Tokens]], candidates: Sequence[Tokens]) -> float:
    """In [0, 1]; each candidate has one or more references.

    >>> corpus_bleu([["the cat sat on the mat".split()]], ["the cat sat on the mat".split()])
    1.0
    """
    right, all_of = Counter[int](), Counter[int]()
    own_length = wanted_length = 0
    for several, candidate in zip(references, candidates, strict=True):
        for order in _ORDERS:
            counts = _grams(candidate, order)
            most: Counter[Tokens] = Counter()
            for reference in several:
                most |= _grams(reference, order)
            right[order] += sum((counts & most).values())
            all_of[order] += max(1, sum(counts.values()))
        own_length += len(candidate)
        wanted_length += min((len(reference) for reference in several), key=lambda n: (abs(n - len(candidate)), n))
    if right[1] == 0:
        return 0.0
    shares = [right[order] / all_of[order] if right[order] else sys.float_info.min for order in _ORDERS]
    return _brevity(own_length, wanted_length) * math.exp(math.fsum(0.25 * math.log(share) for share in shares))


def _grams(tokens: Tokens, order: int) -> Counter[Tokens]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def _brevity(own: int, wanted: int) -> float:
    if own > wanted:
        return 1.0
    return math.exp(1 - wanted / own) if own else 0.0
