"""The base of both ``ConfigDict`` classes: a dict with attribute access, also in nested dicts, lists and tuples."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Self

from etude.errors.spelling import suggest


class MissingAttribute(AttributeError):
    """A missing attribute. Similar names are looked up only when the message is read."""

    def __init__(self, kind: str, name: str, known: Iterable[Any]) -> None:
        super().__init__(kind, name)
        self._kind, self._name, self._known = kind, name, known

    def __str__(self) -> str:
        hint = suggest(self._name, (key for key in self._known if isinstance(key, str)))
        return f"'{self._kind}' object has no attribute '{self._name}'; {hint}"


class AttributeDict(dict[Any, Any]):
    """The common part of both ``ConfigDict`` classes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        for given in args:
            if given:
                for key, value in _raw_items(given):
                    self[key] = value
        for key, value in kwargs.items():
            self[key] = value

    @classmethod
    def _hook(cls, value: Any) -> Any:
        """Convert plain dicts, also in lists and tuples, to this class. A user-defined dict class stays as it is."""
        if type(value) in (dict, OrderedDict) or (isinstance(value, AttributeDict) and type(value) is not cls):
            return cls(value)
        if type(value) in (list, tuple):
            return type(value)(cls._hook(item) for item in value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, self._hook(value))

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            raise AttributeError(f"'{type(self).__name__}' object attribute '{name}' is read-only: write it as an item")
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise MissingAttribute(type(self).__name__, name, dict.keys(self)) from None

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise MissingAttribute(type(self).__name__, name, dict.keys(self)) from None

    def raw_items(self) -> Iterable[tuple[Any, Any]]:
        """Return the items as they are stored, without building lazy objects."""
        return dict.items(self)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Update as ``dict.update`` does, but merge a dict into an existing dict."""
        if len(args) > 1:
            raise TypeError(f"update only accept one positional argument, got {len(args)}")
        given = {**dict(_raw_items(args[0]) if args else ()), **kwargs}
        for key, value in given.items():
            own = dict.get(self, key)
            if isinstance(own, dict) and isinstance(value, dict):
                own.update(value)
            else:
                self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        # Not dict.setdefault, which would store a plain dict.
        if key not in self:
            self[key] = default
        return self[key]

    def __copy__(self) -> Self:
        other = self.__class__()
        for key, value in self.raw_items():
            dict.__setitem__(other, key, value)
        return other

    def copy(self) -> Self:
        return self.__copy__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        other = self.__class__()
        memo[id(self)] = other
        for key, value in self.raw_items():
            dict.__setitem__(other, copy.deepcopy(key, memo), copy.deepcopy(value, memo))
        return other

    def deepcopy(self) -> Self:
        return copy.deepcopy(self)

    def __or__(self, other: Any) -> Self:
        if not isinstance(other, dict):
            return NotImplemented
        made = self.__class__(self)
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Self:
        if not isinstance(other, dict):
            return NotImplemented
        made = self.__class__(other)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (self.__class__, (dict(self.raw_items()),))

    def to_dict(self) -> dict[Any, Any]:
        """Return nested plain dicts."""
        return {key: _plain(value) for key, value in self.raw_items()}

    @classmethod
    def fromkeys(cls, keys: Iterable[Any], value: Any = None) -> Self:
        return cls(dict.fromkeys(keys, value))


def _raw_items(given: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(given, AttributeDict):
        return given.raw_items()
    inner = getattr(given, "_cfg_dict", None)
    if isinstance(inner, AttributeDict):
        return inner.raw_items()
    return given.items() if isinstance(given, Mapping) else given


def _plain(value: Any) -> Any:
    if isinstance(value, AttributeDict):
        return value.to_dict()
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return value
