"""The loader of both dialects as a :class:`~etude.config.tree.Tree`: plain values, file and line of each, overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree
from etude.errors import ConfigError
from etude.plan import Place
from etude_openmm.shared.config.config_base import DictActionBase
from etude_openmm.shared.config.merge import merge, nested
from etude_openmm.shared.reading.lazy_objects import named
from etude_openmm.shared.reading.source import Source


def tree_of(source: Source, path: str, overrides: Sequence[str], options: Mapping[str, Any]) -> Tree:
    """Return the tree that a read chain of files and the overrides of a command line come to."""
    main = os.path.abspath(path)
    values = named(source.values)
    places: dict[Path, Place] = {(): Place(path), **source.places}
    for text in [*overrides, *(options.get("cfg_options") or ())]:
        key, value = _override(text)
        try:
            values = merge(nested({key: value}), values, list_keys=True)
        except ConfigError as error:
            raise ConfigError(error.findings[0].message, at=f"override {text!r}") from error
        if not isinstance(value, Mapping):
            places = {where: at for where, at in places.items() if where[: len(_path(key))] != _path(key)}
        place = places[_path(key)] = Place(f"override {text!r}", 0, key)
        places.setdefault(_path(key)[:1], place)
        source.history.setdefault(_path(key), []).append((place, value))
    files = {main: source.files.get(main, ""), **source.files}
    here = os.getcwd() + os.sep
    history = {
        where: [(_short(place, here), named(value)) for place, value in notes]
        for where, notes in source.history.items()
    }
    return Tree(values, {where: _short(place, here) for where, place in places.items()}, history, files)


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} is not of the form key=value", at="override")
    return key.lstrip("+"), DictActionBase.parse_value(value)


def _path(key: str) -> Path:
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def _short(place: Place, here: str) -> Place:
    """Return a place in a file below the current folder with the file's short name, as people write it."""
    return Place(place.file.removeprefix(here), place.line, place.key) if place.file.startswith(here) else place
