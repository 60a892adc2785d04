"""Parses ``key=value`` overrides in Hydra's grammar and applies them to a config.

.. code-block:: text

    override   [+|++|~] key [@package] = value
    key        words joined by dots (list positions are words: ``data.0.root``), or words joined by slashes
    value      element, or elements separated by commas (a sweep)
    element    'quoted' · [a, b] · {k: v} · function(args) · anything else up to , ] } ) =
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from etude.config.tree import Path
from etude.errors import ConfigError
from etude_libai.lazy.errors import OverrideParseException
from etude_libai.lazy.extra import omegaconf
from etude_libai.lazy.reading.errors import put_on
from etude_libai.places import ORIGINS, way_of

_WORD = r"(?:[A-Za-z_$][\w$-]*|\d+)"
_KEY = re.compile(rf"(\+\+|\+|~)?((?:{_WORD}(?:\.{_WORD})*)|(?:[A-Za-z_][\w-]*(?:/[A-Za-z_][\w-]*)+)|)(@[\w.$-]*)?")
_INT = re.compile(r"[+-]?(?:0|[1-9](?:_?\d)*)")
_DIGITS = r"\d(?:_?\d)*"
_POINT = rf"(?:(?:{_DIGITS})?\.{_DIGITS}|{_DIGITS}\.)"
_FLOAT = re.compile(rf"[+-]?(?:(?:{_POINT}|{_DIGITS})[eE][+-]?{_DIGITS}|{_POINT}|(?i:inf|nan))")
_PLAIN = re.compile(r"[\w/\-\\+.$%*@?|: \t]")
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
_FUNCTION = re.compile(r"([A-Za-z_]\w*)[ \t]*\([ \t]*")
#: Several values for one key, which a single config cannot hold.
_SWEEP = object()


@dataclass
class Override:
    """One parsed override. ``delete`` means ``~key``; ``value`` is a plain value or a sweep."""

    key: str
    value: Any = None
    delete: bool = False


def apply(cfg: Any, given: Iterable[str]) -> Any:
    """Apply overrides to ``cfg`` in order. Mappings are merged; other values are replaced."""
    parsed = []
    for text in given:
        with _attach_override(text):
            parsed.append((text, parse(text)))
    for text, override in parsed:
        new = _first_new(cfg, override.key)
        with _attach_override(text):
            _apply_override(cfg, override)
        ORIGINS.changed(text, new)
    return cfg


@contextmanager
def _attach_override(text: str) -> Iterator[None]:
    """Attach the override to exceptions of the block."""
    try:
        yield
    except Exception as error:
        said = error.args[0] if isinstance(error, KeyError) and error.args else str(error).splitlines()[0]
        hint = ""
        if isinstance(error, NotImplementedError):
            said = "LiBai's overrides cannot delete a key; set it to null"
        elif isinstance(error, OverrideParseException):
            said = "this is no override"
            hint = "write list.0=3 for an element" if "[" in text.partition("=")[0] else "write section.key=value"
            hint = "flags stand before the first key=value" if text.startswith("-") else hint
        put_on(error, ConfigError(str(said), at=f"override '{text}'", hint=hint))
        raise


def _apply_override(cfg: Any, override: Override) -> None:
    if override.delete:
        raise NotImplementedError("deletion is not yet a supported override")
    if override.value is _SWEEP:
        raise omegaconf().ValidationError("Unsupported value type: several values for one key are a sweep")
    _require_configs(cfg, override.key)
    omegaconf().OmegaConf.update(cfg, override.key, override.value, merge=True)


def _first_new(cfg: Any, key: str) -> Path:
    """Return the path of the first part of ``key`` that ``cfg`` does not have, or an empty path.

    It is empty for arguments of lazy calls, too: those are compared with the target.
    """
    node, way = cfg, way_of(key)
    for length, part in enumerate(way, start=1):
        if not isinstance(node, Mapping):
            return ()
        if part not in node:
            return () if "_target_" in node else way[:length]
        node = None if omegaconf().OmegaConf.is_interpolation(node, part) else node[part]
    return ()


def _require_configs(cfg: Any, key: str) -> None:
    """Raise ``KeyError`` if a value above ``key`` cannot hold keys."""
    package = omegaconf().OmegaConf
    parts = key.split(".")
    for length in range(1, len(parts)):
        prefix = ".".join(parts[:length])
        value = package.select(cfg, prefix, default=None)
        # As in the originals: ``update`` makes the levels that are missing.
        if value is None:
            return
        if not package.is_config(value):
            raise KeyError(f"Trying to update key {key}, but {prefix} is not a config, but has type {type(value)}.")


def parse(text: str) -> Override:
    """Parse one string. Raises ``OverrideParseException`` if it does not follow the grammar."""
    match = _KEY.match(text)
    assert match is not None  # every part of the pattern may be empty
    mark, key, rest = match[1], match[2], text[match.end() :]
    if rest and rest[0] != "=":
        raise OverrideParseException(text, f"LexerNoViableAltException: {text}")
    if mark == "~":
        return Override(key, delete=True)
    if not rest:
        raise OverrideParseException(text, f"Error parsing override '{text}'")
    return Override(key, _Value(text, rest[1:]).parse())


# -- values ------------------------------------------------------------------------------------------------------------


class _Value:
    """Parses the right side of an override."""

    def __init__(self, override: str, text: str) -> None:
        self.override, self.text, self.at = override, text.strip(" \t"), 0

    def parse(self) -> Any:
        if not self.text:
            return ""
        elements = [self.element()]
        while self._take(","):
            elements.append(self.element())
        if self.at < len(self.text):
            raise self._unexpected()
        return elements[0] if len(elements) == 1 else _SWEEP

    def element(self) -> Any:
        self._blanks()
        character = self._peek()
        if character in ("'", '"'):
            return self._quoted()
        call = _FUNCTION.match(self.text, self.at)
        if character in ("[", "{"):
            self.at += 1
            return self._list() if character == "[" else self._dict()
        return self._function(call) if call else self._primitive()

    def _quoted(self) -> str:
        quote = self._peek()
        match = re.compile(rf"{quote}((?:\\.|[^\\{quote}])*){quote}").match(self.text, self.at)
        if match is None:
            raise self._unexpected()
        self.at = match.end()
        self._blanks()
        if self.at < len(self.text) and self._peek() not in ",]})":
            raise self._unexpected()
        # Of the backslashes before a quote, half are kept.
        return re.sub(rf"(\\+)(?={quote}|$)", lambda found: found[1][: len(found[1]) // 2], match[1])

    def _list(self) -> list[Any]:
        return [self.element() for _ in self._items("]")]

    def _dict(self) -> dict[Any, Any]:
        items: dict[Any, Any] = {}
        for _ in self._items("}"):
            key = self._primitive(stop=":")
            if not self._take(":"):
                raise self._unexpected()
            items[key] = self.element()
        return items

    def _items(self, closing: str) -> Iterator[None]:
        """Stop before each item of a list that ends with a bracket; the caller reads the item."""
        count = 0
        while not self._take(closing):
            if count and not self._take(","):
                raise self._unexpected()
            count += 1
            yield

    def _function(self, call: re.Match[str]) -> Any:
        self.at = call.end()
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for _ in self._items(")"):
            self._blanks()
            name = re.compile(r"([A-Za-z_]\w*)[ \t]*=[ \t]*").match(self.text, self.at)
            if name:
                self.at = name.end()
                named[name[1]] = self.element()
            else:
                positional.append(self.element())
        function = FUNCTIONS.get(call[1])
        if function is None:
            raise OverrideParseException(self.override, f"Unknown function '{call[1]}'")
        try:
            return function(*positional, **named)
        except (TypeError, ValueError) as error:
            raise OverrideParseException(
                self.override, f"{type(error).__name__} while evaluating '{self.text}': {error}"
            ) from error

    def _primitive(self, *, stop: str = "") -> Any:
        begin = self.at
        while self.at < len(self.text) and self._peek() != stop:
            interpolation = self._interpolation()
            if interpolation:
                self.at = interpolation
            elif self.text[self.at] == "\\" and _ESCAPED.match(self.text, self.at):
                self.at += 2
            elif _PLAIN.match(self.text, self.at):
                self.at += 1
            else:
                break
        raw = self.text[begin : self.at].strip(" \t")
        if not raw:
            raise self._unexpected()
        return _typed(raw)

    def _interpolation(self) -> int | None:
        """Return the end of the ``${…}`` that begins here, counting nested braces; None if there is none."""
        if not self.text.startswith("${", self.at):
            return None
        depth = 0
        for index in range(self.at + 1, len(self.text)):
            depth += {"{": 1, "}": -1}.get(self.text[index], 0)
            if depth == 0:
                return index + 1
        raise self._unexpected()

    def _take(self, character: str) -> bool:
        self._blanks()
        if self._peek() != character:
            return False
        self.at += 1
        return True

    def _blanks(self) -> None:
        while self._peek() in (" ", "\t"):
            self.at += 1

    def _peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _unexpected(self) -> OverrideParseException:
        if self.at >= len(self.text):
            return OverrideParseException(self.override, f"no viable alternative at input '{self.text}'")
        if self._peek() == "=":
            return OverrideParseException(self.override, "mismatched input '=' expecting <EOF>")
        return OverrideParseException(self.override, f"token recognition error at: '{self.text[self.at :]}'")


def _typed(raw: str) -> Any:
    if _INT.fullmatch(raw):
        return int(raw)
    if _FLOAT.fullmatch(raw):
        return float(raw)
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    if raw.lower() == "null":
        return None
    return raw if "${" in raw else _ESCAPED.sub(r"\1", raw)


# -- functions ---------------------------------------------------------------------------------------------------------


def _sweep(*values: Any, **named: Any) -> object:
    return _SWEEP


def _cast(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:
        if isinstance(value, list):
            return [cast(item) for item in value]
        if isinstance(value, dict):
            return {key: cast(item) for key, item in value.items()}
        return kind(value)

    return cast


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise ValueError(f"Cannot cast '{value}' to bool")
        return value.lower() == "true"
    return bool(value)


def _str(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "choice": _sweep, "range": _sweep, "interval": _sweep,
    "int": _cast(int), "float": _cast(float), "str": _cast(_str), "bool": _cast(_bool), "json_str": json.dumps,
}  # fmt: skip
