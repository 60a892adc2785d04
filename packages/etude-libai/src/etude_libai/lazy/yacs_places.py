"""Reports errors of yacs configs, with the line of the file or the override."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from typing import Any

import yaml

from etude.config.files import display
from etude.config.formats.from_yaml import parse_yaml
from etude.config.tree import Tree
from etude.errors import ConfigError
from etude_libai.lazy.reading.errors import explain_reading_error, near, put_on, raised_by_users, says

#: The key for the base files of a config.
BASE = "_BASE_"
_KEY = re.compile(r"(?:Non-existent (?:config )?key|for config key|Key):? ([\w.]+)")


@contextmanager
def reporting(node: Mapping[str, Any], *, file: str = "", pairs: Sequence[Any] = ()) -> Iterator[None]:
    """Attach the place to exceptions raised while ``file`` or ``pairs`` are merged into ``node``."""
    try:
        yield
    except (AssertionError, LookupError, ValueError, OSError, yaml.YAMLError) as error:
        if isinstance(error, FileNotFoundError) and (named := _base_place(file, str(error.filename))):
            beside = glob(os.path.join(os.path.dirname(str(error.filename)) or ".", "*.y*ml"))
            hint = near(os.path.basename(str(error.filename)), map(os.path.basename, beside))
            put_on(error, ConfigError(f"{BASE} names {error.filename}, which is not there", at=named, hint=hint))
        elif isinstance(error, OSError | yaml.YAMLError):
            explain_reading_error(error, file)
        elif not hasattr(error, "etude_reported"):
            put_on(error, _merge_error(error, node, file, pairs))
        raise


@contextmanager
def about(keys: str, *, hint: str = "") -> Iterator[None]:
    """Report exceptions of the block as errors of these ``keys``, unless user code raised them.

    A script may build its parts long after the config was read, and a part does not know the key of a wrong value.
    """
    try:
        yield
    except (AssertionError, LookupError, ValueError, ArithmeticError, RuntimeError, OSError) as error:
        if not raised_by_users(error):
            said = error if isinstance(error, OSError) or not error.args else error.args[0]
            message = str(said) or type(error).__name__
            put_on(error, ConfigError(message, at=keys, hint=hint or getattr(error, "etude_hint", "")))
        raise


def _merge_error(error: Exception, node: Mapping[str, Any], file: str, pairs: Sequence[Any]) -> ConfigError:
    message = str(error) if not isinstance(error, KeyError) else says(error).removeprefix("KeyError: ")
    found = _KEY.search(message)
    if found is None:
        hint = "write KEY VALUE KEY VALUE …" if pairs and len(pairs) % 2 else ""
        return ConfigError(message, at=f"override '{' '.join(map(str, pairs))}'" if pairs else display(file), hint=hint)
    hint = _hint(node, found[1].split(".")) if "Non-existent" in message else ""
    return ConfigError(message, at=_place(found[1], file, pairs), hint=hint)


def _hint(node: Mapping[str, Any], way: Sequence[str]) -> str:
    for depth, part in enumerate(way):
        if part not in node:
            return near(part, node if depth else [*node, BASE])
        inner = node[part]
        if not isinstance(inner, Mapping):
            break
        node = inner
    return ""


def _place(key: str, file: str, pairs: Sequence[Any]) -> str:
    if pairs:
        values = dict(zip(map(str, pairs[::2]), pairs[1::2], strict=False))
        return f"override '{key} {values.get(key, '')}'"
    found = (tree.places.get(tuple(key.split("."))) for _, tree in _trees(file))
    return next((str(place) for place in found if place is not None), display(file))


def _trees(file: str, depth: int = 8) -> Iterator[tuple[str, Tree]]:
    """Yield a YAML file and its bases with the places of their keys, as far as they can be read."""
    try:
        with open(file, encoding="utf-8") as stream:
            tree = parse_yaml(stream.read(), display(file))
    except (OSError, ConfigError):
        return
    yield file, tree
    for base, _ in _bases(file, tree) if depth else ():
        yield from _trees(base, depth - 1)


def _bases(file: str, tree: Tree) -> list[tuple[str, str]]:
    """Return the base files of a YAML file, each with the place that names it."""
    given, folder = tree.get(BASE, default=[]), os.path.dirname(file)
    names = given if isinstance(given, list) else [given]
    return [
        (os.path.join(folder, os.path.expanduser(str(name))), str(tree.place(BASE, index)))
        for index, name in enumerate(names)
    ]


def _base_place(file: str, base: str) -> str:
    """Return the place that names ``base`` as a base file; empty if there is none."""
    named = (place for each, tree in _trees(file) for other, place in _bases(each, tree) if other == base)
    return next(named, "")
