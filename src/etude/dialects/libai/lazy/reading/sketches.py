"""Reads a config without importing what it names: ``etude check`` in a checkout, where an import is the whole project.

While a config is sketched, what it imports is a :class:`Sketch`: a name that can be called, asked for attributes and
written into a lazy call. Names that the source of a module does not have are refused as an import would refuse them.
A name to which a module of yours assigns a value (``from configs.common.train import train``) is that value: such a
module is a config too, and runs the same way.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from etude.dialects.libai.lazy.reading.errors import hinted, is_users, near
from etude.dialects.libai.names import MODULES
from etude.inspection import signatures

#: Packages without torch, which a config may compute with.
_LIGHT = (*sys.stdlib_module_names, "omegaconf", "etude", "yaml", "numpy")
#: Runs a file as a config, and returns its names.
Run = Callable[[str], dict[str, Any]]
#: Packages whose modules are sketched as a whole.
_FAMILY = ("libai", "detectron2", "oneflow", "flowvision", "torch", "torchvision")
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

    def __getitem__(self, key: Any) -> Sketch:
        return Sketch(self.__module__, f"{self.__qualname__}[]")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Accept a value; nothing reads it."""

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __deepcopy__(self, memo: Any) -> Sketch:
        return self

    def __repr__(self) -> str:
        return self.dotted


def _computed(self: Sketch, *others: Any) -> Sketch:
    """Return what arithmetic with an unknown value gives: another one."""
    return Sketch(self.__module__, f"{self.__qualname__}()")


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Sketch, f"__{_name}__", _computed)
    setattr(Sketch, f"__r{_name}__", _computed)


class Module(ModuleType):
    """A module that was not imported."""

    def __init__(self, name: str, read: Sketched) -> None:
        super().__init__(name)
        self.__dict__["_read"] = read

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
            return Module(module, self._read)
        _require(self.__name__, name)
        return self._read.value(self.__name__, name)


class Sketched:
    """One reading of a config without imports. Modules run once in it, as imported ones do."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, Any]] = {}
        self.run: Run | None = None  # given when the config runs

    def importing(self, name: str, real: Callable[[], Any], names: Any) -> Any:
        """Return what an import statement gives: a sketch, or for light modules the ``real`` thing."""
        top = name.partition(".")[0]
        if top in _LIGHT or not (name in MODULES or signatures.has_module(name, tuple(sys.path))):
            return real()
        return Module(name if names else top, self)

    def value(self, module: str, name: str) -> Any:
        """Return the value that a module of the user assigns to ``name``; a sketch of anything else."""
        source = signatures.find_source(module, tuple(sys.path))
        assigned = source.names.get(name) if source and is_users(source.file) else None
        known = isinstance(assigned, ast.expr | str) and module.partition(".")[0] not in _FAMILY
        if source is None or self.run is None or not known:
            return Sketch(module, name)
        if isinstance(assigned, str):  # the module imports it from another one
            origin, _, inner = assigned.partition(":")
            return getattr(Module(origin, self), inner) if inner else Module(origin, self)
        if module not in self.modules:
            try:
                self.modules[module] = self.run(source.file)
            except (ImportError, NameError, SyntaxError):
                raise
            except Exception:  # it computes with something that is only sketched here
                self.modules[module] = {}
        return self.modules[module].get(name, Sketch(module, name))


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
