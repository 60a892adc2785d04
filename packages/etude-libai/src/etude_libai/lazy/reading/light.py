"""A small replacement of OmegaConf for ``etude check``, because importing OmegaConf is slow.

A :class:`Node` can do what nearly all lazy configs do with a ``DictConfig``: get, set, update, iterate. Anything else
raises :class:`NotLight`, and the config is read again with OmegaConf, which then reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from etude.fast_dataclass import is_dataclass

#: Set while configs are read with these classes.
light: ContextVar[bool] = ContextVar("light", default=False)


class NotLight(Exception):
    """A config uses a feature that only OmegaConf has."""


class Node(MutableMapping[Any, Any]):
    """A mapping whose keys are attributes, too. As in OmegaConf, values are copied into it."""

    def __init__(self, content: Mapping[Any, Any] | None = None) -> None:
        object.__setattr__(self, "_content", {})
        self.update(content or {})

    def __getitem__(self, key: Any) -> Any:
        if key not in self._content:
            raise NotLight(key)
        return _known(self._content[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._content[key] = held(value)

    def __delitem__(self, key: Any) -> None:
        if self._content.pop(key, NotLight) is NotLight:
            raise NotLight(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __contains__(self, key: object) -> bool:
        return key in self._content

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __deepcopy__(self, memo: Any) -> Node:
        return Node(self._content)

    __copy__ = copy = lambda self: Node(self._content)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self._content else default

    def pop(self, key: Any, *default: Any) -> Any:
        value = self.get(key, *default) if default else self[key]
        self._content.pop(key, None)
        return value


class Items(MutableSequence[Any]):
    """A list of nodes and values. As in OmegaConf, they are copied into it."""

    def __init__(self, content: Iterable[Any] = ()) -> None:
        self._content = [held(value) for value in content]

    def __getitem__(self, at: Any) -> Any:
        found = self._content[at]
        return Items(found) if isinstance(at, slice) else _known(found)

    def __setitem__(self, at: Any, value: Any) -> None:
        self._content[at] = held(value)

    def __delitem__(self, at: Any) -> None:
        del self._content[at]

    def __len__(self) -> int:
        return len(self._content)

    def __add__(self, other: Iterable[Any]) -> Items:
        return Items([*self._content, *other])

    def __radd__(self, other: Iterable[Any]) -> Items:
        return Items([*other, *self._content])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Items | list | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else NotLight(name)

    def __deepcopy__(self, memo: Any) -> Items:
        return Items(self._content)

    def insert(self, index: int, value: Any) -> None:
        self._content.insert(index, held(value))


def held(value: Any) -> Any:
    """Return a copy of a value, with mappings as nodes."""
    if isinstance(value, Node | dict):
        return Node(getattr(value, "_content", value))
    if isinstance(value, Items | list | tuple):
        return Items(getattr(value, "_content", value))
    if is_dataclass(value) or isinstance(value, set | frozenset):
        raise NotLight(value)
    return value


def _known(value: Any) -> Any:
    if isinstance(value, str) and ("${" in value or value == "???"):
        raise NotLight(value)
    return value


def plain(value: Any) -> Any:
    """Return a node as dicts and lists, with interpolations as they are written."""
    if isinstance(value, Node):
        return {key: plain(item) for key, item in value._content.items()}
    return [plain(item) for item in value._content] if isinstance(value, Items) else value


class _OmegaConf:
    """The constructors of ``OmegaConf``."""

    def __getattr__(self, name: str) -> Any:
        raise NotLight(name)

    def create(self, obj: Any = None) -> Any:
        return held({} if obj is None else obj)


class Module(ModuleType):
    """Replaces ``omegaconf`` for a config that imports it."""

    OmegaConf = _OmegaConf()
    DictConfig = Node
    ListConfig = Items

    def __getattr__(self, name: str) -> Any:
        raise NotLight(name)
