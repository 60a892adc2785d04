"""Inheritance: ``_base_`` names one or several files whose values a config builds on.

Mappings merge key by key; lists and single values are replaced. A mapping with ``_replace_: true`` (or ``_delete_``)
takes the place of what the bases say instead of merging with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.files import display, load_file
from etude.config.tree import Path, Tree
from etude.errors import ConfigError
from etude.plan import Place

BASE = "_base_"
REPLACE = ("_replace_", "_delete_")


def load(path: str, *, python: bool = True, chain: tuple[str, ...] = (), asked_by: str = "") -> Tree:
    """The file at ``path`` over all of its bases; the later of two bases wins. ``chain`` is the files that led here."""
    absolute = os.path.abspath(path)
    if absolute in chain:
        ways = " → ".join(display(file) for file in (*chain[chain.index(absolute) :], absolute))
        raise ConfigError(f"the bases go in a circle: {ways}", at=asked_by)
    own = load_file(path, python=python, asked_by=_with_chain(asked_by, chain))
    merged = Tree({})
    for base, at in _bases(own, absolute):
        merged = merge(merged, load(base, python=python, chain=(*chain, absolute), asked_by=at))
    own.values.pop(BASE, None)
    own.history = {path: [(own.place(*path), value)] for path, value in own.walk() if path[-1] not in REPLACE}
    result = merge(merged, own)
    result.files = {**own.files, **merged.files}
    return result


def merge(under: Tree, over: Tree) -> Tree:
    """``over`` on top of ``under``, with the places and the history of both."""
    result = Tree({}, dict(under.places), {path: list(known) for path, known in under.history.items()})
    for path, entries in over.history.items():
        result.history.setdefault(path, []).extend(entries)
    result.files = {**under.files, **over.files}
    result.values = _merged(under.values, over.values, (), result.places, over)
    result.places[()] = over.place()
    return result


def _merged(
    under: Mapping[Any, Any], over: Mapping[Any, Any], path: Path, places: dict[Path, Place], source: Tree
) -> dict[Any, Any]:
    values = dict(under)
    for key, value in over.items():
        below = (*path, key)
        if isinstance(value, Mapping) and isinstance(values.get(key), Mapping) and not _replaces(value):
            places[below] = source.place(*below)
            values[key] = _merged(values[key], value, below, places, source)
        elif key not in REPLACE:
            values[key] = without_marks(value)
            put_places(places, below, values[key], source)
    return values


def put_places(places: dict[Path, Place], path: Path, value: Any, source: Tree) -> None:
    """Let ``places`` say that ``path`` and all below it now come from ``source``."""
    for old in [known for known in places if known[: len(path)] == path]:
        del places[old]
    places[path] = source.place(*path)
    for below, _ in Tree({"": value}).walk():
        places[(*path, *below[1:])] = source.place(*path, *below[1:])


def without_marks(value: Any) -> Any:
    """``value`` without the ``_replace_`` marks inside it."""
    if isinstance(value, Mapping):
        return {key: without_marks(item) for key, item in value.items() if key not in REPLACE}
    if type(value) in (list, tuple):
        return type(value)(without_marks(item) for item in value)
    return value


def _replaces(value: Mapping[Any, Any]) -> bool:
    return any(value.get(mark) is True for mark in REPLACE)


def _bases(tree: Tree, file: str) -> Iterator[tuple[str, str]]:
    """The files that ``_base_`` names, beside the file that names them, each with its place."""
    named = tree.values.get(BASE, [])
    for index, base in enumerate([named] if isinstance(named, str) else named or []):
        at = str(tree.place(BASE, index))
        if not isinstance(base, str):
            raise ConfigError(f"{BASE} takes the names of files, not {base!r}", at=at)
        yield os.path.join(os.path.dirname(file), os.path.expanduser(base)), at


def _with_chain(asked_by: str, chain: tuple[str, ...]) -> str:
    if len(chain) < 2:
        return asked_by
    return f"{asked_by} (by way of {' → '.join(display(file) for file in chain)})"
