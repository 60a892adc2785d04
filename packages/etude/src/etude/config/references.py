"""Resolves references in a config: ``${optim.lr}`` is another value, ``${env:NAME}`` an environment variable.

A text that is nothing but a reference becomes the value itself, of whatever type; inside a longer text it is written
out. ``$${`` is a plain ``${``. The environment gives only names that the config lists under ``env:`` or that begin
with ``ETUDE_``, and what it gives never goes into a snapshot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from etude.config.formats.from_yaml import scalar
from etude.config.secrets import is_secret
from etude.config.tree import MOST_VALUES, Path, Tree, copied, dotted
from etude.errors import ConfigError, Finding, placed
from etude.errors.spelling import suggest

_REFERENCE = re.compile(r"\$?\$\{([^{}]*)\}")
_FREE_PREFIX = "ETUDE_"
_MISSING = object()
#: Characters that references may make of one text: each may stand for many others.
_LONGEST = 1 << 16


def resolve_references(tree: Tree, environment: Mapping[str, str] | None = None) -> None:
    """Replace every reference by its value; report all that lead nowhere at once."""
    resolver = _Resolver(tree, os.environ if environment is None else environment)
    for path, value in list(tree.walk()):
        if isinstance(value, str) and "${" in value:
            resolver.resolve(path)
    if resolver.findings:
        raise ConfigError(resolver.findings)


def _count(value: Any, most: int) -> int:
    """Return how many values there are in ``value``, or more than ``most``."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        item = waiting.pop()
        count += 1
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
    return count


class _Resolver:
    def __init__(self, tree: Tree, environment: Mapping[str, str]) -> None:
        self.tree, self.environment = tree, environment
        self.findings: list[Finding] = []
        self._done: set[Path] = set()
        self._made = 0
        listed = tree.values.get("env", [])
        self._allowed = {str(name) for name in ([listed] if isinstance(listed, str) else listed or [])}

    def resolve(self, path: Path, chain: tuple[Path, ...] = ()) -> Any:
        """Return the value at ``path`` with its own references resolved; ``chain`` is the chain of references so
        far."""
        value = self.tree.get(*path)
        if path in self._done:
            return value
        if path in chain:
            ways = " → ".join(dotted(step) for step in (*chain[chain.index(path) :], path))
            raise ConfigError(f"references go in a circle: {ways}", at=self._at(path))
        if isinstance(value, str) and "${" in value:
            value = self._text(path, value, chain)
            self._put(path, value)
        elif isinstance(value, Mapping | list | tuple):
            keys = list(value) if isinstance(value, Mapping) else range(len(value))
            for key in keys:
                self.resolve((*path, key), (*chain, path))
            value = self.tree.get(*path)
        self._done.add(path)
        return value

    def _text(self, path: Path, text: str, chain: tuple[Path, ...]) -> Any:
        try:
            whole = _REFERENCE.fullmatch(text)
            if whole and not text.startswith("$$"):
                return self._copied(path, self._target(path, whole[1].strip(), text, chain))
            return self._written(path, text, chain)
        except ConfigError as error:
            self.findings.extend(finding for finding in error.findings if finding not in self.findings)
            return text

    def _copied(self, path: Path, value: Any) -> Any:
        """Return a copy of a value, unless the config grows too large by it."""
        self._made += _count(value, MOST_VALUES)
        if self._made > MOST_VALUES:
            raise ConfigError(f"references make more than {MOST_VALUES} values of this config", at=self._at(path))
        return copied(value)

    def _written(self, path: Path, text: str, chain: tuple[Path, ...]) -> str:
        """Return a text with the values of its references in it."""
        pieces, end, length = [], 0, 0
        for found in _REFERENCE.finditer(text):
            is_plain = found[0].startswith("$$")
            value = found[0][1:] if is_plain else self._target(path, found[1].strip(), text, chain)
            if not is_plain and not isinstance(value, str):
                self._copied(path, value)  # for its size
            pieces += [text[end : found.start()], str(value)]
            end, length = found.end(), length + len(pieces[-2]) + len(pieces[-1])
            if length > _LONGEST:
                message = f"{dotted(path)} grows to more than {_LONGEST} characters by its references"
                raise ConfigError(message, at=self._at(path))
        return "".join([*pieces, text[end:]])

    def _target(self, path: Path, name: str, text: str, chain: tuple[Path, ...]) -> Any:
        if name.startswith("env:"):
            self.tree.secrets[path] = text
            return self._environment(path, name[4:])
        target: Path = tuple(int(part) if part.isdigit() else part for part in name.split("."))
        if self.tree.get(*target, default=_MISSING) is _MISSING:
            known = [dotted(way) for way, _ in self.tree.walk()]
            raise ConfigError(f"${{{name}}} is undefined", at=self._at(path), hint=suggest(name, known, most=6))
        value = self.resolve(target, (*chain, path))
        for secret in [way for way in self.tree.secrets if way[: len(target)] == target]:
            inner = secret[len(target) :]
            self.tree.secrets[(*path, *inner)] = self.tree.secrets[secret] if inner else text
        if is_secret(target[-1], value) or any(is_secret(part, {}) for part in target[:-1]):
            self.tree.secrets.setdefault(path, text)
        return value

    def _environment(self, path: Path, written: str) -> Any:
        name, comma, default = written.partition(",")
        name = name.strip()
        if name not in self._allowed and not name.startswith(_FREE_PREFIX):
            hint = f"list it: env: [{name}], or call it {_FREE_PREFIX}{name}"
            raise ConfigError(f"the config may not read {name} from the environment", at=self._at(path), hint=hint)
        if name in self.environment:
            self.tree.hidden[self.environment[name]] = name
            with placed(self._at(path)):
                return scalar(self.environment[name])
        if comma:
            return scalar(default.strip())
        raise ConfigError(
            f"the environment has no {name}", at=self._at(path), hint=f"${{env:{name},default}} gives a default"
        )

    def _put(self, path: Path, value: Any) -> None:
        holder: Any = self.tree.get(*path[:-1])
        if isinstance(holder, tuple):
            changed = tuple(value if index == path[-1] else item for index, item in enumerate(holder))
            self._put(path[:-1], changed)
        else:
            holder[path[-1]] = value

    def _at(self, path: Path) -> str:
        return str(self.tree.place(*path))
