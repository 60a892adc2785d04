"""The loader of both dialects as a :class:`~etude.config.tree.Tree`: plain values, file and line of each, overrides."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects.openmm.config.config_base import DictActionBase
from etude.dialects.openmm.config.merge import merge, nested
from etude.dialects.openmm.reading.lazy_objects import named
from etude.dialects.openmm.reading.source import Source, assigns_base
from etude.errors import ConfigError
from etude.plan import Place


def tree_of(source: Source, path: str, overrides: Sequence[str], options: Mapping[str, Any]) -> Tree:
    """The tree that a read chain of files and the overrides of a command line come to."""
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
    history = {
        where: [(_short(place), named(value)) for place, value in notes] for where, notes in source.history.items()
    }
    return Tree(values, {where: _short(place) for where, place in places.items()}, history, files)


def refuse_python(path: str, options: Mapping[str, Any]) -> None:
    """``--no-python-config`` refuses configs that are programs."""
    if options.get("no_python_config") and path.endswith(".py"):
        raise ConfigError("a Python config is a program; --no-python-config refuses it", at=path)


def texts_of(path: str, text: str, depth: int = 6) -> list[str]:
    """The text of a config and of the bases that can be found without running anything."""
    texts = [text]
    for base in _bases(path, text) if depth else ():
        file = os.path.join(os.path.dirname(os.path.abspath(path)), base)
        if os.path.isfile(file):
            with open(file, encoding="utf-8", errors="replace") as stream:
                texts.extend(texts_of(file, stream.read(), depth - 1))
    return texts


def keys_in(texts: Sequence[str]) -> set[str]:
    """Top-level keys that are written in the texts, whatever their format."""
    pattern = re.compile(r"^[ \t]?[\"']?(\w+)[\"']?[ \t]*[=:](?!=)|^\{?\s*\"(\w+)\"\s*:", re.MULTILINE)
    return {name for text in texts for pair in pattern.findall(text) for name in pair if name}


def _bases(path: str, text: str) -> list[str]:
    if not path.endswith(".py"):
        found = re.findall(r"_base_[\"']?\s*:\s*(.+)", text)
        return re.findall(r"[\w./\\-]+\.(?:py|json|ya?ml)", found[0]) if found else []
    try:
        tree = ast.parse(re.sub(r"\{\{.*?\}\}", "0", text))
    except SyntaxError:
        return []
    bases: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and assigns_base(node):
            names = [item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant)]
            bases += [name for name in names if isinstance(name, str)]
        elif isinstance(node, ast.ImportFrom) and node.level and node.module:
            bases.append(os.path.join(*[".."] * (node.level - 1), *node.module.split(".")) + ".py")
    return bases


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} is not of the form key=value", at="override")
    return key.lstrip("+"), DictActionBase.parse_value(value)


def _path(key: str) -> Path:
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def _short(place: Place) -> Place:
    """A file below the current folder by its short name, as people write it."""
    return Place(place.file.removeprefix(os.getcwd() + os.sep), place.line, place.key)
