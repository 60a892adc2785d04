"""Reports errors of yacs configs, with the line of the file or the override."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from typing import Any

import yaml

from etude.config.files import display
from etude.dialects.libai.lazy.reading.errors import explain_reading_error, is_users, near, put_on, says
from etude.errors import ConfigError

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
        if not any(is_users(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
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
    found = ((each, _line(document, key.split("."))) for each, document in _documents(file))
    return next((f"{display(each)}:{line}" for each, line in found if line), display(file))


def _documents(file: str, depth: int = 8) -> Iterator[tuple[str, Any]]:
    """Yield a YAML file and its bases, as far as they can be read."""
    try:
        with open(file, encoding="utf-8") as stream:
            document = yaml.compose(stream, Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError):
        return
    yield file, document
    for base, _ in _bases(file, document) if depth else ():
        yield from _documents(base, depth - 1)


def _bases(file: str, document: Any) -> list[tuple[str, int]]:
    """Return the base files of a document, each with its line."""
    pairs = document.value if isinstance(document, yaml.MappingNode) else []
    given = [value for key, value in pairs if key.value == BASE]
    nodes = [node for value in given for node in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
    folder = os.path.dirname(file)
    return [(os.path.join(folder, os.path.expanduser(node.value)), int(node.start_mark.line) + 1) for node in nodes]


def _base_place(file: str, base: str) -> str:
    """Return the place that names ``base`` as a base file; empty if there is none."""
    named = (
        f"{display(each)}:{line}"
        for each, document in _documents(file)
        for other, line in _bases(each, document)
        if other == base
    )
    return next(named, "")


def _line(node: Any, way: Sequence[str]) -> int:
    """Return the line of a key in a YAML document; 0 if it is not there."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in pairs:
        if key.value == way[0]:
            return _line(value, way[1:]) if len(way) > 1 else int(key.start_mark.line) + 1
    return 0
