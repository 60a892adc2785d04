"""Remembers which lists of a run's plan were tuples: YAML has none, and code of other systems tells the two apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def places_of_tuples(values: Any) -> list[list[str | int]]:
    """Return the paths of all tuples, inner ones first.

    >>> places_of_tuples({"scale": (2, 4), "flow": [("train", 1)]})
    [['scale'], ['flow', 0]]
    """
    return [list(path) for path in _places(values, ())]


def _places(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str | int):
                yield from _places(item, (*path, key))
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _places(item, (*path, index))
        if type(value) is tuple:
            yield path


def with_tuples(values: Any, places: Any) -> None:
    """Make tuples of the lists at ``places``, which may come from anybody; what is no list there stays.

    >>> values = {"scale": [2, 4], "flow": [["train", 1]]}
    >>> with_tuples(values, [["scale"], ["flow", 0], ["gone"]])
    >>> values
    {'scale': (2, 4), 'flow': [('train', 1)]}
    """
    for path in places if isinstance(places, list) else ():
        if isinstance(path, list) and path:
            _make_tuple(values, path)


def _make_tuple(values: Any, path: Sequence[Any]) -> None:
    try:
        for key in path[:-1]:
            values = values[key]
        if type(values[path[-1]]) is list:
            values[path[-1]] = tuple(values[path[-1]])
    except (KeyError, IndexError, TypeError):
        return
