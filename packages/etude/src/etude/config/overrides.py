"""Applies changes from the command line: ``key=value``, ``+key=value`` for a new key, ``~key`` to remove one.

A key that the config does not write needs no ``+`` where its language checks every key (``train.compile=true``).

Keys go down through mappings and lists (``hooks.0.momentum=0.1``); values are YAML (``sizes=[64, 10]``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from etude.config.dump import public_override
from etude.config.formats.from_yaml import parse_value
from etude.config.merge import put_places
from etude.config.tree import Path, Tree, dotted
from etude.errors import ConfigError, Finding
from etude.errors.spelling import nearest, suggest
from etude.plan import Place


class _Deleted:
    """Marks in a key's history that an override removed the key."""

    def __repr__(self) -> str:
        return "(taken away)"


DELETED = _Deleted()


def override(tree: Tree, overrides: Iterable[str], *, may_be_new: Callable[[str], bool] | None = None) -> None:
    """Apply ``overrides`` to ``tree`` in order; report all that cannot be applied at once.

    ``may_be_new`` says whether a key that the config does not write needs no ``+``.
    """
    findings: list[Finding] = []
    overrides = list(overrides)
    if "=" in overrides:
        at = overrides.index("=")
        around = [*overrides[max(at - 1, 0) : at], "=", *overrides[at + 1 : at + 2]]
        meant = "".join(around) if len(around) == 3 else "key=value"
        raise ConfigError(f"{' '.join(around)!r} is not an override", hint=f"write {meant} without spaces")
    for text in overrides:
        try:
            _apply(tree, text, new=may_be_new is not None and may_be_new(text.partition("=")[0]))
        except ConfigError as error:
            findings.extend(error.findings)
    if findings:
        raise ConfigError(findings)


def put(tree: Tree, key: str, value: Any, place: Place) -> None:
    """Write ``value`` under the dotted ``key``, which need not be there."""
    _set(tree, tuple(key.split(".")), value, place, new=True)


def _apply(tree: Tree, text: str, *, new: bool = False) -> None:
    key, equals, written = text.partition("=")
    away = key.startswith("~")
    new = new or key.startswith("+")
    key = key.removeprefix("+").removeprefix("~")
    place = Place(f"override {public_override(text)!r}", 0, key)
    if not key or (not equals and not away):
        name = key or "key"
        raise ConfigError(f"{text!r} is not an override", hint=f"write {name}=VALUE, or ~{name} to leave it out")
    path = tuple(int(part) if part.lstrip("-").isdigit() else part for part in key.split("."))
    if away:
        _remove(tree, path, place)
    else:
        _set(tree, path, parse_value(written, str(place)), place, new=new)


def _set(tree: Tree, path: Path, value: Any, place: Place, *, new: bool) -> None:
    holder, path = _holder(tree, path, place, new=new)
    last = path[-1]
    if isinstance(holder, list):
        last = _index(tree, holder, path, place, room=1 if new else 0)
        path = (*path[:-1], last)
        if last == len(holder):
            holder.append(None)
    elif last not in holder and not new:
        raise _unknown(tree, path, holder, place)
    holder[last] = value
    source = Tree({}, {path: place})
    put_places(tree.places, path, value, source)
    for below, leaf in Tree({"": value}).walk():
        tree.history.setdefault((*path, *below[1:]), []).append((place, leaf))


def _remove(tree: Tree, path: Path, place: Place) -> None:
    holder, path = _holder(tree, path, place, new=False)
    if isinstance(holder, list):
        path = (*path[:-1], _index(tree, holder, path, place, room=0))
    elif path[-1] not in holder:
        raise _unknown(tree, path, holder, place)
    del holder[path[-1]]
    for old in [known for known in tree.places if known[: len(path)] == path]:
        del tree.places[old]
    if isinstance(holder, list):
        _close_gap(tree, path, len(holder))
    tree.history.setdefault(path, []).append((place, DELETED))


def _close_gap(tree: Tree, path: Path, left: int) -> None:
    """Move the items after a removed one up, and their places with them."""
    *above, index = path
    for later in range(int(index) + 1, left + 1):
        old = (*above, later)
        for known in [known for known in tree.places if known[: len(old)] == old]:
            tree.places[(*above, later - 1, *known[len(old) :])] = tree.places.pop(known)


def _holder(tree: Tree, path: Path, place: Place, *, new: bool) -> tuple[Any, Path]:
    """Return the mapping or list that holds the last part of ``path``, created if ``new`` allows it; and ``path``
    with its indices counted from the front."""
    value: Any = tree.values
    way: Path = ()
    for depth, part in enumerate(path[:-1]):
        if isinstance(value, list):
            part = _index(tree, value, (*way, part), place, room=0)
        elif value.get(part) is None:
            if not new:
                raise _unknown(tree, path, value, place, part=part)
            value[part] = [] if isinstance(path[depth + 1], int) else {}  # hooks.0=… begins a list
            tree.places[(*way, part)] = place
        value, way = value[part], (*way, part)
        if not isinstance(value, dict | list):
            raise _no_room(value, way, path[depth + 1 :], place)
    return value, (*way, path[-1])


def _no_room(value: Any, way: Path, rest: Path, place: Place) -> ConfigError:
    hint = f"write {dotted(way)}={{type: {value}, {dotted(rest)}: …}}" if isinstance(value, str) else ""
    return ConfigError(f"{dotted(way)} is {value!r} and holds no {dotted(rest)}", at=str(place), hint=hint)


def _index(tree: Tree, items: list[Any], way: Path, place: Place, *, room: int) -> int:
    index = way[-1]
    if not isinstance(index, int):
        raise ConfigError(f"{dotted(way[:-1])} is a list: {index!r} must be an index from 0", at=str(place))
    if not -len(items) <= index < len(items) + room:
        raise ConfigError(f"{dotted(way[:-1])} has {len(items)} items and no {index}", at=str(place))
    return index % len(items) if index < 0 else index


def _unknown(
    tree: Tree, path: Path, holder: Mapping[Any, Any], place: Place, *, part: str | int | None = None
) -> ConfigError:
    """Report an unknown key with a similar one of its section, else one of this name elsewhere, else how to add it."""
    wrong = path[-1] if part is None else part
    depth = path.index(wrong)
    names = [str(key) for key in holder]
    here = nearest(str(wrong), names)
    elsewhere = [dotted(known) for known, _ in tree.walk() if known[-1] == path[-1]]
    if here:
        meant = f"did you mean {dotted((*path[:depth], here, *path[depth + 1 :]))!r}?"
    else:
        meant = f"did you mean {elsewhere[0]!r}?" if elsewhere else suggest(str(wrong), names)
    if path[0] == "extra":
        meant = "a new key there needs a plus"
    hint = f"{meant} (+{dotted(path)}=… adds a new key)"
    return ConfigError(f"there is no key {dotted(path)}", at=str(place), hint=hint)
