"""Drafts a native config: what has a direct form becomes native, everything else a comment with its file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree, dotted

HOW_MODELS_ARE_CALLED = (
    "model: a native model returns its loss, or its outputs for `loss`; "
    "write `update` if yours is called in another way"
)
_PLAIN = (str, int, float, bool, type(None))
#: A longer value is cut in its comment; the line says where to read the whole of it.
_LONGEST = 80


class Draft:
    """A native config that is being written, and which values of the original are in it."""

    def __init__(self, tree: Tree, name: str, *, marks: Sequence[str] = ("type",)) -> None:
        self.tree = tree
        #: Keys whose value names the class of a mapping.
        self.marks = marks
        self.config: dict[str, Any] = {"name": name}
        self.notes: list[str] = []
        self._taken: set[Path] = set()

    def take(self, *path: str | int, default: Any = None) -> Any:
        """Return the value at ``path`` and count it as converted."""
        self._taken.add(path)
        return self.tree.get(*path, default=default)

    def put(self, section: str, **values: Any) -> None:
        """Add values to a section of the native config; None is left out."""
        given = {key: value for key, value in values.items() if value is not None}
        if given:
            self.config.setdefault(section, {}).update(given)

    def component(self, *path: str | int, target: str, leave_out: Sequence[str] = ()) -> dict[str, Any]:
        """Return the class at ``path`` as ``target`` with the arguments that are plain; others become comments."""
        given = self.tree.get(*path)
        for mark in self.marks:
            self._taken.add((*path, mark))
        if not isinstance(given, Mapping):
            self._taken.add(path)
            return {"type": target}
        direct = [key for key in given if key not in (*self.marks, *leave_out) and self._is_plain(given[key])]
        return {"type": target, **{str(key): _written(self.take(*path, key)) for key in direct}}

    def loader(self, *path: str | int, target: str, leave_out: Sequence[str] = (), **more: Any) -> dict[str, Any]:
        """Return a split of the data: the dataset at ``path``, and what is known of its batches."""
        usual = {"workers": 0, "drop_last": False, "shuffle": False, "batch_size": None}
        described = {key: value for key, value in more.items() if usual.get(key, ...) != value}
        return {"dataset": self.component(*path, target=target, leave_out=leave_out), **described}

    def left(self) -> Iterator[str]:
        """Yield a line for each value that is not in the native config: its place, its key and its value."""
        for path, value in self._rest((), self.tree.values):
            at = self.tree.place(*path)
            yield f"{f'{at}: ' if at.file else ''}{dotted(path)} = {_shortened(value)}"

    def _rest(self, path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
        items: Iterator[tuple[str | int, Any]] = (
            iter(value.items()) if isinstance(value, Mapping) else iter(enumerate(value))
        )
        for key, item in items:
            here = (*path, key)
            if here in self._taken or str(key).startswith("_"):
                continue
            if self._has_taken_below(here) and isinstance(item, Mapping | list | tuple):
                yield from self._rest(here, item)
            elif item not in (None, {}, [], ()):
                yield here, item

    def _has_taken_below(self, path: Path) -> bool:
        return any(len(one) > len(path) and one[: len(path)] == path for one in self._taken)

    def _is_plain(self, value: Any) -> bool:
        """Return whether YAML can hold a value, and the native engine would not build a part of it."""
        if isinstance(value, Mapping):
            # A native config builds every mapping that names a type; the original gives it to the class as it is.
            return not {"type", *self.marks} & set(value) and all(map(self._is_plain, value.values()))
        if isinstance(value, list | tuple):
            return all(map(self._is_plain, value))
        return isinstance(value, _PLAIN) and not (isinstance(value, str) and "${" in value)


def _written(value: Any) -> Any:
    """Return a value for YAML, which has no tuples."""
    if isinstance(value, Mapping):
        return {str(key): _written(item) for key, item in value.items()}
    return [_written(item) for item in value] if isinstance(value, list | tuple) else value


def _shortened(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
