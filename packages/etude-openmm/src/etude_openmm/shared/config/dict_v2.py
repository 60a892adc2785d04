"""MMEngine's ``ConfigDict``, which stores lazy objects of pure-Python configs and imports them when they are read."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from etude_openmm.shared.config.dict_base import AttributeDict
from etude_openmm.shared.reading.lazy_objects import built, named

_DELETE = "_delete_"


class ConfigDict(AttributeDict):
    """A dict with attribute access. Reading a lazy object imports it; ``to_dict`` returns its name."""

    def __getitem__(self, key: Any) -> Any:
        return built(super().__getitem__(key))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys. Because this is overridden, ``**config`` uses :meth:`__getitem__`."""
        return iter(self.keys())

    def get(self, key: Any, default: Any = None) -> Any:
        return built(super().get(key, default))

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove a key and return its value; ``default`` (None) if it is missing."""
        return built(super().pop(key, default))

    def popitem(self) -> tuple[Any, Any]:
        key, value = super().popitem()
        return key, built(value)

    def items(self) -> Any:
        return [(key, built(value)) for key, value in self.raw_items()]

    def values(self) -> Any:
        return [built(value) for value in dict.values(self)]

    def merge(self, other: dict[Any, Any]) -> None:
        """Merge ``other`` into this dict. Nested dicts are copied; one with ``_delete_=True`` replaces the old one."""
        merged = _merged(copy.deepcopy(other), copy.deepcopy(self))
        self.clear()
        for key, value in merged.items():
            self[key] = value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ConfigDict):
            return self.to_dict() == other.to_dict()
        if isinstance(other, dict):
            return dict(self.items()) == other
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[Any, Any]:
        """Return nested plain dicts, with lazy objects as dotted names."""
        plain: dict[Any, Any] = named(self)
        return plain

    def _to_lazy_dict(self) -> dict[Any, Any]:
        """Return nested plain dicts, with lazy objects as they are."""
        return {key: _to_lazy(value) for key, value in self.raw_items()}


def _to_lazy(value: Any) -> Any:
    if isinstance(value, ConfigDict):
        return value._to_lazy_dict()
    if type(value) in (list, tuple):
        return type(value)(_to_lazy(item) for item in value)
    return value


def _merged(over: dict[Any, Any], under: dict[Any, Any]) -> dict[Any, Any]:
    """Return ``under`` merged with ``over``. Stored values are not read, so that lazy objects stay."""
    below = {} if dict.get(over, _DELETE, False) else dict(dict.items(under))
    for key, value in dict.items(over):
        if key == _DELETE:
            continue
        own = below.get(key)
        if isinstance(value, dict) and isinstance(own, dict):
            value = _merged(value, own)
        elif isinstance(value, dict):
            dict.pop(value, _DELETE, None)
        below[key] = value
    return below
