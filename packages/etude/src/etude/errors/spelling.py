"""Finds what a misspelt or foreign name was probably meant to be, and writes the hint for it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import cache

_SYNONYMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "synonyms.txt")


def with_article(kind: str) -> str:
    """Return ``a model``, ``an optimizer``."""
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def suggest(name: str, known: Iterable[str], *, most: int = 12, otherwise: str | None = None) -> str:
    """Return the hint that follows an unknown name: the nearest one, or all of them if they are few.

    ``otherwise`` is what to say instead of the list if none is near.
    """
    names = sorted(set(known))
    near = nearest(name, names)
    if near:
        return f"did you mean {near!r}?"
    if otherwise is not None:
        return otherwise
    if not names:
        return "there are none"
    shown = ", ".join(names[:most])
    return f"known: {shown}" + (f", … ({len(names)} in all)" if len(names) > most else "")


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that ``name`` was probably meant to be, ignoring case.

    One slip of the fingers (a letter dropped, doubled, swapped or wrong) beats likeness as a whole, so that even a
    name of two letters is found. A word of another system is answered with ours (``learning_rate``: ``lr``).
    """
    meant = meaning(name, known)
    if meant is not None or not known:
        return meant
    from difflib import get_close_matches

    by_fold = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    slips = [candidate for candidate in by_fold if is_slip(folded, candidate)]
    swapped = [candidate for candidate in slips if sorted(candidate) == sorted(folded)]
    found = get_close_matches(folded, swapped or slips or by_fold, n=1, cutoff=0.0 if slips else 0.6)
    return by_fold[found[0]] if found else None


def meaning(word: str, known: Collection[str]) -> str | None:
    """Return the name among ``known`` that means the same as ``word`` in another system.

    >>> meaning("learning_rate", ["lr", "momentum"]), meaning("CosineAnnealingLR", ["Cosine"]), meaning("lr", ["lr"])
    ('lr', 'Cosine', None)
    """
    return next((ours for ours in _synonyms()[0].get(word.casefold(), ()) if ours in known), None)


def elsewhere(word: str) -> str:
    """Return what to write instead of a key that Étude keeps in another section; empty where nothing is known.

    >>> elsewhere("max_epochs"), elsewhere("clip_norm"), elsewhere("nonsense")
    ('train.epochs', 'optim.clip_norm', '')
    """
    ours, instead = _synonyms()
    folded = word.casefold()
    return next((instead[name] for name in (folded, *ours.get(folded, ())) if name in instead), "")


@cache
def _synonyms() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Read the words of other trainers: what we call the same, and what to write instead of a key."""
    ours: dict[str, list[str]] = {}
    instead: dict[str, str] = {}
    with open(_SYNONYMS, encoding="utf-8") as file:
        for line in (line.strip() for line in file if not line.startswith("#")):
            theirs, _, same = line.partition(" = ")
            key, arrow, text = line.partition(" -> ")
            if arrow:
                instead[key] = text
            ours |= dict.fromkeys(theirs.split(), same.split()) if same else {}
    return ours, instead


def is_slip(one: str, other: str) -> bool:
    """Return whether one letter more, less, different or exchanged with its neighbour leads from one to the other."""
    if abs(len(one) - len(other)) > 1 or not set(one) & set(other):
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    if len(a) != len(b):
        return a[1:] == b or a == b[1:]
    return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
