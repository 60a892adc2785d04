"""Parses JSON with the line of every key, and refuses duplicate keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from etude.config.tree import LONGEST_NUMBER, MOST_VALUES, Path, Tree, dotted
from etude.errors import ConfigError, Finding
from etude.plan import Place

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+|\n')


def parse_json(text: str, file: str) -> Tree:
    """Parse the object in ``text``, with places."""
    marks = _Marks(text, file)
    try:
        values = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= LONGEST_NUMBER else 0)
        marks.value(())
    except json.JSONDecodeError as error:
        raise ConfigError(f"not valid JSON: {error.msg}", at=f"{file}:{error.lineno}") from None
    except RecursionError:
        raise ConfigError("nested too deeply", at=file) from None
    if not isinstance(values, dict):
        raise ConfigError("a config is an object of keys and values", at=f"{file}:1")
    if marks.findings:
        raise ConfigError(marks.findings)
    return Tree(values, marks.places)


class _Marks:
    """Walks the tokens of valid JSON, and records where each value starts."""

    def __init__(self, text: str, file: str) -> None:
        self.file, self.line = file, 1
        self.places: dict[Path, Place] = {}
        self.findings: list[Finding] = []
        self._tokens = self._scan(text)

    def _scan(self, text: str) -> Iterator[str]:
        for match in _TOKEN.finditer(text):
            if match[0] == "\n":
                self.line += 1
            else:
                yield match[0]

    def value(self, path: Path, token: str = "") -> None:
        token = token or next(self._tokens)
        self.places.setdefault(path, Place(self.file, self.line, dotted(path)))
        if len(self.places) > MOST_VALUES:
            raise ConfigError(f"more than {MOST_VALUES} values", at=f"{self.file}:{self.line}")
        if len(token) > LONGEST_NUMBER and token.lstrip("-").isdigit():
            self.findings.append(Finding(f"{self.file}:{self.line}", f"a number of {len(token)} digits: {token[:12]}…"))
        if token == "{":
            self._object(path)
        elif token == "[":
            self._array(path)

    def _object(self, path: Path) -> None:
        seen: set[Any] = set()
        while (token := next(self._tokens)) != "}":
            if token == ",":
                continue
            key = json.loads(token)
            below = (*path, key)
            if key in seen:
                at = f"{self.file}:{self.line}"
                first = self.places[below].line
                self.findings.append(Finding(at, f"the key {dotted(below)} is written twice", f"first at line {first}"))
            seen.add(key)
            self.places[below] = Place(self.file, self.line, dotted(below))
            next(self._tokens)
            self.value(below)

    def _array(self, path: Path) -> None:
        index = 0
        while (token := next(self._tokens)) != "]":
            if token != ",":
                self.value((*path, index), token)
                index += 1
