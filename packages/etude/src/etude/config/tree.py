"""Holds the values of config files, each with its file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.fast_dataclass import field, record
from etude.plan import NOWHERE, Place

#: The way to a value: keys of mappings and indices of lists.
Path = tuple[str | int, ...]
#: Values of a config, and digits of a whole number in it (a float has 309 at most): more is a mistake or an attack.
MOST_VALUES, LONGEST_NUMBER = 100_000, 300
#: What most values are; they hold no others.
_LEAVES = (str, int, float, type(None))


@record(frozen=False)
class Tree:
    """Plain values (dicts, lists, scalars; Python configs may hold any object) and the place of each.

    ``history`` keeps, for a path, every value that was set there, oldest first, so that ``etude config KEY`` can tell
    what overrode what.
    """

    values: dict[str, Any]
    places: dict[Path, Place] = field(default_factory=dict)
    history: dict[Path, list[tuple[Place, Any]]] = field(default_factory=dict)
    #: Absolute path → text of every file that was read, in order.
    files: dict[str, str] = field(default_factory=dict)
    #: What a snapshot writes in place of a value that came from the environment.
    secrets: dict[Path, str] = field(default_factory=dict)
    #: The texts that the environment gave, which no file of a run may repeat, and the names of their variables.
    hidden: dict[str, str] = field(default_factory=dict)
    #: The groups that ``defaults`` of any file picks from.
    groups: set[str] = field(default_factory=set)

    def place(self, *path: str | int) -> Place:
        """Return the place of the value at ``path``; for a value that no file has, the nearest place above it."""
        for length in range(len(path), -1, -1):
            found = self.places.get(tuple(path[:length]))
            if found is not None:
                return found
        return NOWHERE

    def get(self, *path: str | int, default: Any = None) -> Any:
        """Return the value at ``path``, or ``default`` if there is none."""
        value: Any = self.values
        for key in path:
            if isinstance(value, Mapping) and key in value:
                value = value[key]
            elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(key, int):
                if not -len(value) <= key < len(value):
                    return default
                value = value[key]
            else:
                return default
        return value

    def walk(self) -> Iterator[tuple[Path, Any]]:
        """Yield every path and value below the root, parents before children."""
        yield from _walk((), self.values)


def dotted(path: Path) -> str:
    """Return a path with dots: ``("data", "train", 0)`` → ``data.train.0``."""
    return ".".join(str(part) for part in path)


def copied(value: Any) -> Any:
    """Copy nested containers, mappings as dicts; the values inside stay the same objects."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return value


def _walk(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    items: Iterator[tuple[str | int, Any]]
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, list | tuple):
        items = iter(enumerate(value))
    else:
        return
    for key, child in items:
        yield (*path, key), child
        if not isinstance(child, _LEAVES):
            yield from _walk((*path, key), child)
