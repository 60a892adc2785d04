"""fvcore's registry: classes and functions of one kind by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etude.dialects.libai.lazy.read_errors import near, put_on
from etude.dialects.libai.lazy.targets import locate
from etude.errors import ConfigError

__all__ = ["Registry", "locate"]


class Registry:
    """``@R.register()`` or ``R.register(obj)`` adds under the object's own name; ``R.get(name)`` finds it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._obj_map: dict[str, Any] = {}

    def _do_register(self, name: str, obj: Any) -> None:
        assert name not in self._obj_map, f"An object named '{name}' was already registered in '{self._name}' registry!"
        self._obj_map[name] = obj

    def register(self, obj: Any = None) -> Any:
        if obj is not None:
            self._do_register(obj.__name__, obj)
            return None

        def decorate(target: Any) -> Any:
            self._do_register(target.__name__, target)
            return target

        return decorate

    def get(self, name: str) -> Any:
        found = self._obj_map.get(name)
        if found is None:
            error = KeyError(f"No object named '{name}' found in '{self._name}' registry!")
            put_on(error, ConfigError(error.args[0], hint=near(name, self._obj_map)))
            raise error
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._obj_map

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._obj_map.items())

    def __repr__(self) -> str:
        return f"Registry of {self._name}: {', '.join(self._obj_map)}"
