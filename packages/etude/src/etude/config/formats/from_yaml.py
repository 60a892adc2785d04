"""Parses YAML with the line of every key.

Scalars follow YAML 1.2: ``1e-3`` is a number, ``12:30``, ``yes`` and ``2024-01-01`` are strings. A key that is written
twice is refused, and so is every tag that is not plain data. Values are made from the parser's events, so that a
file can neither recurse deeply nor grow without bound through its aliases.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from etude.config.tree import LONGEST_NUMBER, MOST_VALUES, Path, Tree, copied, dotted
from etude.errors import ConfigError, Finding
from etude.fast_dataclass import replace
from etude.plan import Place

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 100

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TAG = "tag:yaml.org,2002:"


def require_short_number(text: str) -> None:
    """Raise for a number that no float can hold, and that would take Python long to read."""
    if len(text) > LONGEST_NUMBER:
        raise ConfigError(f"a number of {len(text)} digits: {text[:12]}…")


def scalar(text: str) -> Any:
    """Return the value of a plain (unquoted) scalar in YAML 1.2.

    >>> [scalar(text) for text in ("1e-3", "12:30", "yes", "0x10", "-.inf", "1.", "~")]
    [0.001, '12:30', 'yes', 16, -inf, 1.0, None]
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        require_short_number(text)
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def parse_yaml(text: str, file: str) -> Tree:
    """Parse the mapping in ``text``, with places; ``file`` is its name in messages."""
    values, places = _parse(text, file)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError("a config is a mapping of keys to values", at=f"{file}:1")
    return Tree(values, places)


def parse_value(text: str, source: str) -> Any:
    """Parse a value of the command line; ``source`` names the argument in messages, which has no lines."""
    try:
        return _parse(text, source)[0]
    except ConfigError as error:
        raise ConfigError([replace(finding, at=source) for finding in error.findings]) from None


def _parse(text: str, file: str) -> tuple[Any, dict[Path, Place]]:
    try:
        maker = _Maker(text, file)
        value = maker.document()
    except yaml.YAMLError as error:
        raise _explained(error, text, file) from None
    if maker.findings:
        raise ConfigError(maker.findings)
    return value, maker.places


class _Maker:
    """Turns the events of one document into values, and records where each one starts."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.places: dict[Path, Place] = {}
        self.findings: list[Finding] = []
        self._loader = _Loader(text)
        #: The value of each anchor, its path, and where in ``_order`` the paths below it are; None while it is read.
        self._anchors: dict[str, tuple[Any, Path, tuple[int, int] | None]] = {}
        self._order: list[Path] = []

    def document(self) -> Any:
        self._loader.get_event()
        if self._loader.check_event(yaml.StreamEndEvent):
            return None
        self._loader.get_event()
        value = self._value((), None)
        self._loader.get_event()
        if not self._loader.check_event(yaml.StreamEndEvent):
            raise self._refused(self._loader.get_event(), "a second document begins here; a config is one")
        return value

    def _value(self, path: Path, place: Place | None) -> Any:
        event = self._loader.get_event()
        self._require_room(event, path, 1)
        self._put(path, place or self._place(event, path))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        if event.anchor:
            self._anchors[event.anchor] = (None, path, None)
        begin = len(self._order)
        value = self._made(event, path)
        if event.anchor:
            self._anchors[event.anchor] = (value, path, (begin, len(self._order)))
        return value

    def _put(self, path: Path, place: Place) -> None:
        self.places[path] = place
        self._order.append(path)

    def _require_room(self, event: Any, path: Path, more: int) -> None:
        if len(path) > _DEEPEST or len(self._order) + more > MOST_VALUES:
            raise self._refused(event, f"nested deeper than {_DEEPEST} levels, or more than {MOST_VALUES} values")

    def _made(self, event: Any, path: Path) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            self._plain_tag(event, "map")
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            self._plain_tag(event, "seq")
            items: list[Any] = []
            while not self._loader.check_event(yaml.SequenceEndEvent):
                items.append(self._value((*path, len(items)), None))
            self._loader.get_event()
            return items
        return self._scalar(event)

    def _mapping(self, path: Path) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        inherited: dict[Any, Any] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            event = self._loader.get_event()
            key = self._key(event, path)
            if key in made:
                first = self.places[(*path, key)]
                self._tell(event, f"the key {dotted((*path, key))} is written twice", f"first at line {first.line}")
            begin = len(self._order)
            value = self._value((*path, key), self._place(event, (*path, key)))
            if key == "<<" and event.implicit[0]:
                inherited |= self._merged(event, value, path, self._order[begin:])
            else:
                made[key] = value
        self._loader.get_event()
        return inherited | made

    def _key(self, event: Any, path: Path) -> Any:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refused(event, "a key must be a string or a number")
        key = self._scalar(event)
        if key is None or isinstance(key, bool | float):
            return event.value
        return key

    def _merged(self, event: Any, value: Any, path: Path, below: list[Path]) -> dict[Any, Any]:
        """Return the keys that ``<<: *other`` merges in from one or several mappings; a mapping's own keys win.

        ``below``: the paths of what the value holds.
        """
        found: dict[Any, Any] = {}
        for index, source in reversed(list(enumerate(value if isinstance(value, list) else [value]))):
            if not isinstance(source, dict):
                self._tell(event, "<< takes a mapping or a list of mappings")
                continue
            at: Path = (*path, "<<", index) if isinstance(value, list) else (*path, "<<")
            self._require_room(event, path, len(below))
            for old in [known for known in below if known[: len(at)] == at and len(known) > len(at)]:
                if (new := (*path, *old[len(at) :])) not in self.places:
                    self._put(new, self.places[old])
            found |= source
        return found

    def _alias(self, event: Any, path: Path) -> Any:
        if event.anchor not in self._anchors:
            raise self._refused(event, f"*{event.anchor} is undefined: there is no &{event.anchor} above it")
        value, source, span = self._anchors[event.anchor]
        if span is None:
            raise self._refused(event, f"*{event.anchor} is a part of itself")
        self._require_room(event, path, span[1] - span[0])
        for known in self._order[slice(*span)]:
            self._put((*path, *known[len(source) :]), self.places[known])
        return copied(value)

    def _scalar(self, event: Any) -> Any:
        if event.tag is None or event.tag == "!":
            try:
                return scalar(event.value) if event.implicit[0] and event.tag is None else event.value
            except ConfigError as error:
                raise self._refused(event, error.findings[0].message) from None
        as_tagged: dict[str, Callable[[str], Any]] = {
            _TAG + "str": str, _TAG + "int": int, _TAG + "float": lambda text: float(scalar(text)),
            _TAG + "bool": _as_bool, _TAG + "null": lambda text: None,
        }  # fmt: skip
        if event.tag not in as_tagged:
            raise self._refused(event, f"the tag {event.tag} is not allowed: a config file holds data, no objects")
        try:
            return as_tagged[event.tag](event.value)
        except (ValueError, TypeError):
            raise self._refused(event, f"{event.value!r} is not a {event.tag.removeprefix(_TAG)}") from None

    def _plain_tag(self, event: Any, name: str) -> None:
        if event.tag not in (None, "!", _TAG + name):
            raise self._refused(event, f"the tag {event.tag} is not allowed: a config file holds data, no objects")

    def _place(self, event: Any, path: Path) -> Place:
        return Place(self.file, event.start_mark.line + 1, dotted(path))

    def _tell(self, event: Any, message: str, hint: str = "") -> None:
        self.findings.append(Finding(str(self._place(event, ())), message, hint))

    def _refused(self, event: Any, message: str) -> ConfigError:
        return ConfigError([*self.findings, Finding(str(self._place(event, ())), message)])


def _as_bool(text: str) -> bool:
    value = _CONSTANTS.get(text)
    if not isinstance(value, bool):
        raise ValueError(text)
    return value


def _explained(error: yaml.YAMLError, text: str, file: str) -> ConfigError:
    """Turn PyYAML's complaint into a message with its line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 0
        return ConfigError("holds a character that YAML does not allow", at=str(Place(file, line)))
    lines = text.splitlines()
    written = lines[mark.line] if mark.line < len(lines) else ""
    indent = written[: len(written) - len(written.lstrip())]
    if "\t" in indent or written[mark.column : mark.column + 1] == "\t":
        message, hint = "a tab in the indentation", "YAML allows spaces only: replace each tab by spaces"
    else:
        context = getattr(error, "context", None) or ""
        message = f"not valid YAML: {getattr(error, 'problem', None) or error}" + (f" ({context})" if context else "")
        hint = "a value that holds ': ' needs quotes" if "mapping values are not allowed" in message else ""
        if context and (reference := re.search(r"(?<![\"'])\$\{[^}]*\}?", written)):
            hint = f'between braces a reference needs quotes: "{reference[0]}"'
    return ConfigError(message, at=str(Place(file, mark.line + 1)), hint=hint)
