"""Reads a config without importing what it names: ``etude check`` in a checkout, where an import is the whole project.

While a config is sketched, what it imports is a :class:`Sketch`: a name that can be called, asked for attributes and
written into a lazy call. Names that the source of a module does not have are refused as an import would refuse them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from etude.dialects.libai.lazy.reading.errors import hinted, near
from etude.dialects.libai.names import MODULES
from etude.inspection import signatures

#: Packages without torch, which a config may compute with.
_LIGHT = (*sys.stdlib_module_names, "omegaconf", "etude", "yaml", "numpy")
_LAZY = ("etude.dialects.libai.lazy.", "etude.dialects.libai.args")


class Sketch:
    """Something of a module that was not imported."""

    def __init__(self, module: str, name: str = "") -> None:
        self.__module__, self.__qualname__, self.__name__ = module, name, name.rpartition(".")[2]

    @property
    def dotted(self) -> str:
        return f"{self.__module__}.{self.__qualname__}" if self.__qualname__ else self.__module__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Sketch(self.__module__, f"{self.__qualname__}.{name}".lstrip("."))

    def __call__(self, *args: Any, **kwargs: Any) -> Sketch:
        return Sketch(self.__module__, f"{self.__qualname__}()")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __deepcopy__(self, memo: Any) -> Sketch:
        return self

    def __repr__(self) -> str:
        return self.dotted


class Module(ModuleType):
    """A module that was not imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = f"{self.__name__}.{name}"
        table = MODULES.get(self.__name__, {})
        if table.get(name, "").startswith(_LAZY):
            target, _, attribute = table[name].partition(":")
            return getattr(importlib.import_module(target), attribute)
        if name in table:
            return Sketch(self.__name__, name)
        if module in MODULES or signatures.has_module(module, tuple(sys.path)):
            return Module(module)
        _require(self.__name__, name)
        return Sketch(self.__name__, name)


def sketching(name: str, importing: Callable[[], Any], names: Any) -> Any:
    """Return what an import statement of a config gives: a sketch, or for light modules the real thing."""
    top = name.partition(".")[0]
    if top in _LIGHT or not (name in MODULES or signatures.has_module(name, tuple(sys.path))):
        return importing()
    return Module(name if names else top)


def by_name(value: Any) -> Any:
    """Return a config's values with sketched targets by their names."""
    if isinstance(value, Sketch):
        return value.dotted
    if isinstance(value, Mapping):
        return {key: by_name(item) for key, item in value.items()}
    return [by_name(item) for item in value] if isinstance(value, list) else value


def _require(module: str, name: str) -> None:
    """Raise the error of an import for a name that the module's source does not have."""
    source = signatures.find_source(module, tuple(sys.path))
    if source is None or source.stars or {name, "__getattr__"} & set(source.names):
        return
    error = ImportError(f"cannot import name {name!r} from {module!r} ({source.file})", name=module)
    raise hinted(error, near(name, [known for known in source.names if not known.startswith("_")]))
