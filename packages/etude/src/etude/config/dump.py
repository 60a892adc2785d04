"""Writes a config as plain YAML for a run's folder: resolved, without secrets."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import yaml

from etude.config.tree import Path, Tree

REDACTED = "REDACTED"
_SECRET_KEY = re.compile(r"token(?!i[sz])|secret|passw|api_?key|_key$", re.IGNORECASE)
#: ``key: value`` inside a value that is written in one line.
_KEY = re.compile(r"""(?<!\w)["']?([\w.-]+)["']?\s*[:=]\s*""")
_VALUE = re.compile(r"""\[[^\]]*\]|"[^"]*"|'[^']*'|[^\s,{}\[\]()]+""")
#: ``//user:password@`` in an address.
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+@")
#: A value of the environment shorter than this could stand anywhere by chance.
_SHORTEST_SECRET = 6


def snapshot(tree: Tree) -> str:
    """Return the tree as YAML. Values from the environment appear as the reference they came from. Values of keys
    that are named like secrets, and any text that repeats a value from the environment, are redacted."""
    spoken = [text for text in tree.hidden if len(text) >= _SHORTEST_SECRET]
    return to_yaml(_public(tree.values, (), tree.secrets, spoken))


def public_files(tree: Tree) -> dict[str, str]:
    """Return the texts of the files that were read, for a run's folder, with secrets redacted."""
    files = {path: text.splitlines(keepends=True) for path, text in tree.files.items()}
    everywhere = [text for text in tree.hidden if len(text) >= _SHORTEST_SECRET]
    for path, entries in tree.history.items():
        for place, value in entries:
            lines = files.get(os.path.abspath(place.file))
            if lines is None or not _is_secret(path[-1], value):
                continue
            everywhere += [text for text in _texts(value) if len(text) >= _SHORTEST_SECRET]
            lines[place.line - 1] = _without(lines[place.line - 1], _texts(value))
    return {
        path: _IN_ADDRESS.sub(f"{REDACTED}@", _without("".join(lines), everywhere)) for path, lines in files.items()
    }


def _texts(value: Any) -> list[str]:
    """Return the strings of a secret; a reference to the environment may be shown."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, str) and item and not item.startswith("${")]


def _without(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def redact(values: Any) -> Any:
    """Return ``values`` with secrets hidden (the texts of keys that are named like one), for anything that is
    written or shown."""
    return _public(values, (), {}, [])


def public_text(text: str, values: Any) -> str:
    """Return ``text``, which shows ``values`` in some language, without the texts of keys that are called like secrets.

    >>> public_text("hub = dict(token='abcdefgh')", {"hub": {"token": "abcdefgh"}})
    "hub = dict(token='REDACTED')"
    """
    for secret in _secrets_in(values):
        found = secret if len(secret) >= _SHORTEST_SECRET else repr(secret)
        text = text.replace(found, REDACTED if found == secret else repr(REDACTED))
    return _IN_ADDRESS.sub(f"{REDACTED}@", text)


def _secrets_in(values: Any) -> list[str]:
    if isinstance(values, Mapping):
        own = [text for key, item in values.items() if _is_secret(key, item) for text in _texts(item)]
        return own + [text for item in values.values() for text in _secrets_in(item)]
    if isinstance(values, list | tuple):
        return [text for item in values for text in _secrets_in(item)]
    return []


def to_yaml(values: Any) -> str:
    """Return plain YAML in the given order. Objects of a Python config become their dotted path or repr."""
    return yaml.dump(_plain(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _public(value: Any, path: Path, secrets: Mapping[Path, str], spoken: list[str]) -> Any:
    if path in secrets:
        return secrets[path]
    if isinstance(value, Mapping):
        return {
            key: _hidden(item) if _is_secret(key, item) and (*path, key) not in secrets
            else _public(item, (*path, key), secrets, spoken)
            for key, item in value.items()
        }  # fmt: skip
    if isinstance(value, list | tuple):
        items = [_public(item, (*path, index), secrets, spoken) for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    return _IN_ADDRESS.sub(f"{REDACTED}@", _without(value, spoken)) if isinstance(value, str) else value


def is_secret_key(key: Any) -> bool:
    """Return whether a key is called like a secret: ``hf_token``, ``password``, ``api_key``."""
    return isinstance(key, str) and bool(_SECRET_KEY.search(key))


def public_override(text: str, mark: str = REDACTED) -> str:
    """Return ``key=value`` as it may be printed: without values, nested ones included, of keys that are named like
    secrets.

    >>> public_override("hub.token=abc"), public_override("+hooks.0={type: Report, api_key: abc, every: 1ep}")
    ('hub.token=REDACTED', '+hooks.0={type: Report, api_key: REDACTED, every: 1ep}')
    """
    key, given, value = text.partition("=")
    if not given:
        return text
    return f"{key}={mark if is_secret_key(key.rpartition('.')[2]) else public_line(value, mark)}"


def public_line(text: str, mark: str = REDACTED) -> str:
    """Return a line of a config or a program without the values of names that are called like secrets.

    >>> public_line("hooks: [{type: Report, api_key: abc}]"), public_line("git clone https://me:abc@example.org/x")
    ('hooks: [{type: Report, api_key: REDACTED}]', 'git clone https://REDACTED@example.org/x')
    """
    kept, end = "", 0
    for key in _KEY.finditer(text):
        value = _VALUE.match(text, key.end()) if key.start() >= end and is_secret_key(key[1]) else None
        if value is not None:
            kept, end = kept + text[end : key.end()] + mark, value.end()
    return _IN_ADDRESS.sub(f"{mark}@", kept + text[end:])


def _is_secret(key: Any, value: Any) -> bool:
    return is_secret_key(key) and isinstance(value, str | list | tuple)


def _hidden(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_hidden(item) for item in value]
    return REDACTED if isinstance(value, str) else value


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
    from etude.config.from_yaml import scalar

    style = "'" if not isinstance(scalar(value), str) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    flat = not any(isinstance(item, dict | list) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flat)


_Dumper.add_representer(float, _float)
_Dumper.add_representer(str, _string)
_Dumper.add_representer(list, _list)
