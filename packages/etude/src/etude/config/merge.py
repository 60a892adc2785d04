"""Merges configs: ``_base_`` names files that a config builds on, ``defaults`` picks files from folders of groups.

Mappings merge key by key; lists and single values are replaced. A mapping with ``_replace_: true`` (or ``_delete_``)
takes the place of what the files before it say instead of merging with it, in whichever file of the chain it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.files import ENDINGS, display, load_file
from etude.config.tree import Path, Tree
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.plan import Place

BASE = "_base_"
#: ``defaults: {optim: adamw}`` reads ``optim/adamw.yaml`` in the config's folder and puts it below the key ``optim``.
GROUPS = "defaults"
#: A file may name two bases, each of these two more …
_LONGEST_CHAIN, _MOST_FILES = 50, 300
REPLACE = ("_replace_", "_delete_")


def load(
    path: str,
    *,
    chain: tuple[str, ...] = (),
    asked_by: str = "",
    choices: Mapping[str, tuple[str, Place]] | None = None,
    read: list[str] | None = None,
) -> Tree:
    """Read the file at ``path`` over its groups and bases; the later of two wins. Marks stay in: :func:`finish`.

    ``chain`` is the files that led here. ``choices`` are the groups that the command line picks. ``read`` are the
    files that were read until now, some of them several times.
    """
    absolute = os.path.abspath(path)
    read = [] if read is None else read
    read.append(absolute)
    if len(read) > _MOST_FILES or len(chain) > _LONGEST_CHAIN:
        raise ConfigError(f"more than {_LONGEST_CHAIN} bases deep, or {_MOST_FILES} bases in all", at=asked_by)
    if absolute in chain:
        ways = " → ".join(display(file) for file in (*chain[chain.index(absolute) :], absolute))
        raise ConfigError(f"the bases go in a circle: {ways}", at=asked_by)
    own = load_file(path, asked_by=_with_chain(asked_by, chain))
    merged = Tree({})
    for base, at in _bases(own, absolute):
        merged = merge(merged, load(base, chain=(*chain, absolute), asked_by=at, choices=choices, read=read))
    for group, file, at in _groups(own, absolute, choices or {}):
        part = load(file, chain=(*chain, absolute), asked_by=at, read=read)
        merged = merge(merged, _below(part, group))
    own.values.pop(BASE, None)
    groups = {*map(str, own.values.pop(GROUPS, None) or ()), *merged.groups}
    own.history = {path: [(own.place(*path), value)] for path, value in own.walk() if path[-1] not in REPLACE}
    result = merge(merged, own)
    result.files, result.groups = {**own.files, **merged.files}, groups
    return result


def finish(tree: Tree) -> None:
    """Remove the ``_replace_`` marks when nothing is left to merge."""
    tree.values = without_marks(tree.values)
    for path in [path for path in tree.places if path and path[-1] in REPLACE]:
        del tree.places[path]


def merge(under: Tree, over: Tree) -> Tree:
    """Return ``over`` on top of ``under``, with the places and the history of both."""
    result = Tree({}, dict(under.places), {path: list(known) for path, known in under.history.items()})
    for path, entries in over.history.items():
        result.history.setdefault(path, []).extend(entries)
    result.files, result.groups = {**under.files, **over.files}, under.groups | over.groups
    result.values = _merged(under.values, over.values, (), result.places, over)
    result.places[()] = over.place()
    return result


def _merged(
    under: Mapping[Any, Any], over: Mapping[Any, Any], path: Path, places: dict[Path, Place], source: Tree
) -> dict[Any, Any]:
    values = dict(under)
    for key, value in over.items():
        below = (*path, key)
        both = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        if both and not any(value.get(mark) is True for mark in REPLACE):
            places[below] = source.place(*below)
            values[key] = _merged(values[key], value, below, places, source)
        elif key not in REPLACE or key not in values:
            values[key] = value
            put_places(places, below, value, source)
    return values


def put_places(places: dict[Path, Place], path: Path, value: Any, source: Tree) -> None:
    """Set the place of ``path`` and everything below it to ``source``."""
    for old in [known for known in places if known[: len(path)] == path]:
        del places[old]
    places[path] = source.place(*path)
    for below, _ in Tree({"": value}).walk():
        places[(*path, *below[1:])] = source.place(*path, *below[1:])


def without_marks(value: Any) -> Any:
    """Return ``value`` without the ``_replace_`` marks inside it."""
    if isinstance(value, Mapping):
        return {key: without_marks(item) for key, item in value.items() if key not in REPLACE}
    if type(value) in (list, tuple):
        return type(value)(without_marks(item) for item in value)
    return value


def _bases(tree: Tree, file: str) -> Iterator[tuple[str, str]]:
    """Yield the files that ``_base_`` names, relative to the file that names them, each with its place."""
    named = tree.values.get(BASE, [])
    for index, base in enumerate([named] if isinstance(named, str) else named or []):
        at = str(tree.place(BASE, index))
        if not isinstance(base, str):
            raise ConfigError(f"{BASE} takes the names of files, not {base!r}", at=at)
        yield os.path.join(os.path.dirname(file), os.path.expanduser(base)), at


def _groups(tree: Tree, file: str, choices: Mapping[str, tuple[str, Place]]) -> Iterator[tuple[str, str, str]]:
    """Yield group, file and place for every entry of ``defaults``; ``null`` picks nothing."""
    named = tree.values.get(GROUPS)
    if named is None:
        return
    if not isinstance(named, Mapping):
        hint = "write defaults: {optim: adamw}, which reads optim/adamw.yaml"
        raise ConfigError(
            f"{GROUPS} must be a mapping of groups to names, not {named!r}", at=str(tree.place(GROUPS)), hint=hint
        )
    for group, name in named.items():
        chosen, place = choices.get(str(group), (name, tree.place(GROUPS, group)))
        if chosen is not None:
            yield str(group), _file_of_group(os.path.dirname(file), str(group), str(chosen), str(place)), str(place)


def _file_of_group(folder: str, group: str, name: str, at: str) -> str:
    home = os.path.join(folder, *group.split("."))
    there = sorted(os.listdir(home)) if os.path.isdir(home) else []
    found = [file for file in there if file in (name, *(name + ending for ending in ENDINGS))]
    if found:
        return os.path.join(home, found[0])
    if not os.path.isdir(home):
        raise ConfigError(f"{GROUPS}.{group}: there is no folder {display(home)}", at=at)
    names = [os.path.splitext(file)[0] for file in there if file.endswith(ENDINGS)]
    raise ConfigError(f"{GROUPS}.{group}: {display(home)} has no {name!r}", at=at, hint=suggest(name, names, most=6))


def _below(tree: Tree, group: str) -> Tree:
    """Move a tree below the key ``group`` (``data.train`` goes two levels down)."""
    way: Path = tuple(group.split("."))
    values: Any = tree.values
    for key in reversed(way):
        values = {key: values}
    places = {(*way, *path): place for path, place in tree.places.items()}
    return Tree(values, places, {(*way, *path): known for path, known in tree.history.items()}, tree.files)


def _with_chain(asked_by: str, chain: tuple[str, ...]) -> str:
    if len(chain) < 2:
        return asked_by
    return f"{asked_by} (by way of {' → '.join(display(file) for file in chain)})"
