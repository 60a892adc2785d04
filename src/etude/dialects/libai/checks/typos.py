"""Finds arguments of lazy calls that are misspelt, if the target takes any argument.

For a target with ``**kwargs`` an unknown argument is no mistake, but one that is a single slip away from a missing
argument is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects.libai.checks.calls import MARKS, signature_of
from etude.dialects.libai.places import ORIGINS
from etude.dialects.libai.schema import KEYS
from etude.errors import Finding, is_slip, nearest

#: Sections without a target and the keys that belong there, beside any of your own.
_SECTIONS: dict[Path, tuple[str, ...]] = {("dataloader",): ("train", "test", "evaluator")}


def slips(tree: Tree) -> list[Finding]:
    """Return every key that was probably meant to be another one."""
    found: list[Finding] = []
    for way, node in tree.walk():
        if isinstance(node, Mapping):
            found += _in(tree, way, node, _SECTIONS[way] if way in _SECTIONS else _takes(node.get("_target_")))
    return found


def _takes(target: Any) -> tuple[str, ...]:
    """Return the arguments of a target with ``**kwargs``; nothing for others, which :mod:`.calls` checks."""
    signature = signature_of(target)
    return tuple(each.name for each in signature.parameters) if signature is not None and signature.open else ()


def _in(tree: Tree, way: Path, node: Mapping[Any, Any], words: Sequence[str]) -> list[Finding]:
    missing = [word for word in words if word not in node]
    found = []
    for key in node:
        if not isinstance(key, str) or key in words or key in MARKS:
            continue
        meant = nearest(key, [word for word in missing if len(word) > 1 and is_slip(key, word)])
        if (
            meant is None
            and way in _SECTIONS
            and (near := nearest(key, [word for word in words if is_slip(key, word)]))
        ):
            at, text = str(tree.place(*way, key)), f"{dotted((*way, key))}: nothing reads it"
            found.append(Finding(at, text, f"did you mean {near!r}?", "warning"))
        if meant:
            at = str(tree.place(*way, key))
            found.append(Finding(at, f"unknown key {dotted((*way, key))}", f"did you mean {meant!r}?"))
    return found


def new_keys(given: Mapping[str, Path]) -> list[Finding]:
    """Return a finding for every override that adds a key: an error if it is nearly a known key, else a warning.

    ``given`` maps an override to the path of the first new part of its key.
    """
    found = []
    for text, way in given.items():
        known = {**KEYS, **_SECTIONS}.get(way[:-1])
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
        if str(tree.place(*way)) != f"override '{text}'" or way[:-1] in (*KEYS, *_SECTIONS):
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
