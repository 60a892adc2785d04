"""What a yacs config refuses, told with the line of the file or the pair of the command line that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import yaml

from etude.config.files import display
from etude.dialects.libai.lazy.telling import near, put_on, says, tell_reading
from etude.errors import ConfigError

_KEY = re.compile(r"(?:Non-existent (?:config )?key|for config key|Key):? ([\w.]+)")


@contextmanager
def telling(node: Mapping[str, Any], *, file: str = "", pairs: Sequence[Any] = ()) -> Iterator[None]:
    """Exceptions of merging ``file`` or ``pairs`` into ``node`` know where to look."""
    try:
        yield
    except (AssertionError, LookupError, ValueError, OSError, yaml.YAMLError) as error:
        if isinstance(error, OSError | yaml.YAMLError):
            tell_reading(error, file)
        elif not hasattr(error, "etude_told"):
            put_on(error, _told(error, node, file, pairs))
        raise


def _told(error: Exception, node: Mapping[str, Any], file: str, pairs: Sequence[Any]) -> ConfigError:
    message = str(error) if not isinstance(error, KeyError) else says(error).removeprefix("KeyError: ")
    found = _KEY.search(message)
    if found is None:
        hint = "write KEY VALUE KEY VALUE …" if pairs and len(pairs) % 2 else ""
        return ConfigError(message, at=f"override '{' '.join(map(str, pairs))}'" if pairs else display(file), hint=hint)
    hint = _hint(node, found[1].split(".")) if "Non-existent" in message else ""
    return ConfigError(message, at=_place(found[1], file, pairs), hint=hint)


def _hint(node: Mapping[str, Any], way: Sequence[str]) -> str:
    for part in way:
        if part not in node:
            return near(part, node)
        inner = node[part]
        if not isinstance(inner, Mapping):
            break
        node = inner
    return ""


def _place(key: str, file: str, pairs: Sequence[Any]) -> str:
    if pairs:
        values = dict(zip(map(str, pairs[::2]), pairs[1::2], strict=False))
        return f"override '{key} {values.get(key, '')}'"
    try:
        with open(file, encoding="utf-8") as stream:
            line = _line(yaml.compose(stream, Loader=yaml.SafeLoader), key.split("."))
    except (OSError, yaml.YAMLError):
        line = 0
    return f"{display(file)}:{line}" if line else display(file)


def _line(node: Any, way: Sequence[str]) -> int:
    """The line of a key in a YAML document; 0 where it stands in another file."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in pairs:
        if key.value == way[0]:
            return _line(value, way[1:]) if len(way) > 1 else int(key.start_mark.line) + 1
    return 0
