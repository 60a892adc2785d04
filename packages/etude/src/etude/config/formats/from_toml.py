"""Parses TOML with the line of every table and key; values inside one line or array share the line of their key."""

from __future__ import annotations

import re
import tomllib

from etude.config.tree import LONGEST_NUMBER, Path, Tree, dotted
from etude.errors import ConfigError
from etude.plan import Place

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_KEY})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_KEY})\s*=")
_LONG_NUMBER = re.compile(rf"(?<!\w)[-+]?(?:0[xob])?[0-9a-fA-F_]{{{LONGEST_NUMBER + 1},}}(?!\w)")
#: Python's reader takes seconds for more.
_LARGEST = 1 << 20
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)


def parse_toml(text: str, file: str) -> Tree:
    """Parse the table in ``text``, with places."""
    if len(text) > _LARGEST:
        raise ConfigError(f"{len(text) >> 20} MB: a config in TOML has at most {_LARGEST >> 20}", at=file)
    if long := _LONG_NUMBER.search(_STRING.sub(lambda found: _blank(found[0]), text)):
        line = text.count("\n", 0, long.start()) + 1
        raise ConfigError(f"a number of {len(long[0])} digits: {long[0][:12]}…", at=f"{file}:{line}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = re.search(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)", message)
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        bare = message[: found.start()] if found else message
        raise ConfigError(f"not valid TOML: {bare}", at=f"{file}:{line}") from None
    except RecursionError:
        raise ConfigError("nested too deeply", at=file) from None
    return Tree(values, _places(text, file))


def _places(text: str, file: str) -> dict[Path, Place]:
    places: dict[Path, Place] = {(): Place(file, 1)}
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in _statements(text):
        header, assignment = _HEADER.match(line), _ASSIGNMENT.match(line)
        if header:
            table = _table_path(_split(header[2]), header[1] == "[[", counts)
            path = table
        elif assignment:
            path = (*table, *_split(assignment[1]))
        else:
            continue
        for length in range(len(path), 0, -1):
            places.setdefault(path[:length], Place(file, number, dotted(path[:length])))
    return places


def _table_path(keys: Path, appended: bool, counts: dict[Path, int]) -> Path:
    """Return the path to a table; arrays of tables lead to their newest item."""
    path: Path = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if appended and position == len(keys) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _statements(text: str) -> list[tuple[int, str]]:
    """Return the lines on which a statement begins, with their numbers: those not inside a string, array or inline
    table."""
    blanked = _STRING.sub(lambda found: _blank(found[0]), text)
    lines, depth, found = text.splitlines(), 0, []
    for number, (line, bare) in enumerate(zip(lines, blanked.splitlines(), strict=False), 1):
        if depth == 0 and bare.strip(" \t\x00"):
            found.append((number, line))
        depth += sum(bare.count(mark) for mark in "[{") - sum(bare.count(mark) for mark in "]}")
    return found


def _blank(text: str) -> str:
    """Blank out strings and comments, but keep newlines; a one-line string may be a key."""
    return re.sub(r"[^\n]", "\x00", text) if "\n" in text or text.startswith("#") else "_" * len(text)


def _split(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, without their quotes."""
    parts = re.findall(_PART, key)
    return tuple(str(tomllib.loads(f"key = {part}")["key"]) if part[:1] in "\"'" else part for part in parts)
