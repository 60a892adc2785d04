"""Writes a config as plain YAML for a run's folder: resolved, without secrets."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import yaml

from etude.config.secrets import (
    REDACTED,
    SHORTEST,
    hidden,
    hide_forms,
    hide_line,
    hide_text,
    is_secret,
    is_secret_key,
    repeated,
)
from etude.config.tree import Path, Tree
from etude.errors import ConfigError


def snapshot(tree: Tree) -> str:
    """Return the tree as YAML. Values from the environment appear as the reference they came from. Values of keys
    that are named like secrets or that have a secret's form, and any text that repeats one, are redacted."""
    return to_yaml(_public(tree.values, (), tree.secrets, _known_secrets(tree)))


def hide_secrets_of(tree: Tree, text: str) -> str:
    """Return ``text``, which was made from the tree, without the tree's secrets, for what is shown or printed."""
    return hide_forms(_without(text, _known_secrets(tree)))


def secret_in(tree: Tree, text: str) -> bool:
    """Return whether ``text`` repeats a value of the tree, or of the environment, that is named like a secret."""
    spoken = [value for value, name in tree.hidden.items() if value and is_secret_key(name)]
    return any(value in text for value in (*secrets_in(tree.values), *spoken)) or hide_forms(text) != text


def _known_secrets(tree: Tree) -> list[str]:
    """Return the values that no text may repeat, the longest first, since one may contain another."""
    spoken = (text for text in tree.hidden if len(text) >= SHORTEST)
    return sorted({*secrets_in(tree.values), *spoken}, key=len, reverse=True)


def secrets_in(values: Any) -> list[str]:
    """Return the values of all keys that are named like secrets, but for short words that any text may have."""
    return [text for text in _secrets_in(values) if repeated(text)]


def public_files(tree: Tree) -> dict[str, str]:
    """Return the texts of the files that were read, for a run's folder, with secrets redacted."""
    files = {path: text.splitlines(keepends=True) for path, text in tree.files.items()}
    everywhere = _known_secrets(tree)
    for path, entries in tree.history.items():
        for place, value in entries:
            lines = files.get(os.path.abspath(place.file))
            if lines is None or not is_secret(path[-1], value):
                continue
            everywhere += [text for text in _texts(value) if len(text) >= SHORTEST]
            lines[place.line - 1] = _without(lines[place.line - 1], _texts(value))
    return {
        path: hide_text(_without("".join(lines), everywhere), python=path.endswith(".py"))
        for path, lines in files.items()
    }


def _texts(value: Any) -> list[str]:
    """Return the strings of a secret; a reference to the environment may be shown."""
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) and value and not value.startswith("${") else []


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def redact(values: Any) -> Any:
    """Return ``values`` with secrets hidden, by their keys and their form, for anything that is written or shown."""
    return _public(values, (), {}, [])


def public_text(text: str, values: Any) -> str:
    """Return ``text``, which shows ``values`` in some language, without the texts of keys that are called like secrets.

    >>> public_text("hub = dict(token='abcdefgh')", {"hub": {"token": "abcdefgh"}})
    "hub = dict(token='REDACTED')"
    """
    for secret in _secrets_in(values):
        found = secret if len(secret) >= SHORTEST else repr(secret)
        text = text.replace(found, REDACTED if found == secret else repr(REDACTED))
    return hide_forms(text)


def _secrets_in(values: Any) -> list[str]:
    if isinstance(values, Mapping):
        own = [text for key, item in values.items() if is_secret(key, item) for text in _texts(item)]
        return own + [text for item in values.values() for text in _secrets_in(item)]
    if isinstance(values, list | tuple):
        return [text for item in values for text in _secrets_in(item)]
    return []


def to_yaml(values: Any) -> str:
    """Return plain YAML in the given order. Objects of a Python config become their dotted path or repr."""
    return yaml.dump(_plain(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _public(value: Any, path: Path, secrets: Mapping[Path, str], known: list[str]) -> Any:
    if path in secrets:
        return secrets[path]
    if isinstance(value, Mapping):
        return {
            key: hidden(item) if is_secret(key, item) and (*path, key) not in secrets
            else _public(item, (*path, key), secrets, known)
            for key, item in value.items()
        }  # fmt: skip
    if isinstance(value, list | tuple):
        items = [_public(item, (*path, index), secrets, known) for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    return hide_forms(_without(value, known)) if isinstance(value, str) else value


def public_override(text: str, mark: str = REDACTED) -> str:
    """Return ``key=value`` as it may be printed: without values, nested ones included, of keys that are named like
    secrets.

    >>> public_override("hub.token=abc"), public_override("+hooks.0={type: Report, api_key: abc, every: 1ep}")
    ('hub.token=REDACTED', '+hooks.0={type: Report, api_key: REDACTED, every: 1ep}')
    """
    key, given, value = text.partition("=")
    if not given:
        return text
    name = key.rpartition(".")[2]
    return f"{key}={mark if is_secret_key(name) or is_secret(name, value) else hide_line(value, mark)}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__module__', '?')}.{getattr(value, '__qualname__', repr(value))}"
    if isinstance(value, Enum) and not isinstance(value, str | int | float):
        return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    return str(value) if isinstance(value, str | int | float) else repr(value)


def flat(plan_text: str) -> dict[str, Any]:
    """Return the plan's values by dotted key: what two runs are compared by.

    >>> flat("optim: {type: SGD, lr: 0.1}")
    {'optim.type': 'SGD', 'optim.lr': 0.1}
    """
    try:
        values = yaml.load(plan_text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    found: dict[str, Any] = {}
    _flatten(values, "", found)
    return found


def _flatten(value: Any, key: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            _flatten(item, f"{key}.{name}" if key else str(name), found)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            _flatten(item, f"{key}.{index}", found)
    elif isinstance(value, float) and not math.isfinite(value):
        found[key] = str(value)
    elif key:
        found[key] = value if isinstance(value, bool | int | float | str | type(None)) else str(value)


class _Dumper(yaml.SafeDumper):
    """Writes numbers and texts so that the YAML 1.2 reader reads the same back; lists of plain values on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    if value != value or value in (float("inf"), float("-inf")):
        text = ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    else:
        text = repr(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    from etude.config.formats.from_yaml import scalar

    try:
        style = "'" if not isinstance(scalar(value), str) else None
    except ConfigError:  # a long number
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    flat = not any(isinstance(item, dict | list) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flat)


_Dumper.add_representer(float, _float)
_Dumper.add_representer(str, _string)
_Dumper.add_representer(list, _list)
