"""Finds misspelt keys in sections that may hold any keys, and misspelt overrides that add a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etude.config.tree import Path, Tree, dotted
from etude.errors import Finding
from etude.errors.spelling import is_slip, nearest
from etude_libai.places import ORIGINS
from etude_libai.schema import KEYS

#: The keys of ``dataloader``, beside any of your own.
_LOADERS = ("train", "test", "evaluator")
_SECTIONS: dict[Path, tuple[str, ...]] = {**KEYS, ("dataloader",): _LOADERS}


def slips(tree: Tree) -> Iterator[Finding]:
    """Yield every key of ``dataloader`` that was probably meant to be another one: an error if that one is missing."""
    node = tree.get("dataloader")
    for key in [str(key) for key in node if key not in _LOADERS] if isinstance(node, Mapping) else []:
        meant = nearest(key, [word for word in _LOADERS if is_slip(key, word)])
        if meant:
            at, severity = str(tree.place("dataloader", key)), "warning" if meant in node else "error"
            yield Finding(at, f"unknown key dataloader.{key}", f"did you mean {meant!r}?", severity)


def new_keys(given: Mapping[str, Path]) -> list[Finding]:
    """Return a finding for every override that adds a key: an error if it is nearly a known key, else a warning.

    ``given`` maps an override to the path of the first new part of its key.
    """
    found = []
    for text, way in given.items():
        known = _SECTIONS.get(way[:-1])
        if known is None or way[-1] in known:
            continue
        near = nearest(str(way[-1]), known)
        if near:
            found.append(Finding(f"override '{text}'", f"unknown key {dotted(way)}", f"did you mean {near!r}?"))
        elif len(way) > 1:
            at, hint = f"override '{text}'", "nothing of Étude reads it"
            found.append(Finding(at, f"the config had no key {dotted(way)}", hint, "warning"))
    return found


def beside(tree: Tree) -> list[Finding]:
    """Return a finding for every override that adds a misspelt key to a user-defined mapping (``model.cfg``)."""
    found = []
    for text, way in ORIGINS.new.items():
        if str(tree.place(*way)) != f"override '{text}'" or way[:-1] in _SECTIONS:
            continue
        node, key = tree.get(*way[:-1]), str(way[-1])
        if isinstance(node, Mapping) and "_target_" not in node:
            near = nearest(key, [str(other) for other in node if other != key and _is_typo(key, str(other))])
            if near:
                at, hint = f"override '{text}'", f"did you mean {near!r}?"
                found.append(Finding(at, f"the config had no key {dotted(way)}", hint))
    return found


def _is_typo(key: str, other: str) -> bool:
    """Return whether ``key`` is a misspelt ``other``; ``dim1`` and ``dim2``, ``size_h`` and ``size_w`` are not."""
    if not is_slip(key, other) or min(len(key), len(other)) < 4:
        return False
    differ = [n for n, (a, b) in enumerate(zip(key, other, strict=False)) if a != b] if len(key) == len(other) else []
    last = len(differ) == 1 and (key[differ[0]].isdigit() or (key + "_")[differ[0] + 1] == "_")
    return not last
