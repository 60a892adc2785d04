"""Stand-ins for what a pure-Python config imports: the import happens when the value is read from the config."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from etude_openmm.shared.errors import ConfigImportError, ConfigMissingModule, ConfigRuntimeError


class _StandIn:
    """What the stand-ins of a config share: they are compared by their path and never called."""

    location: str | None

    @property
    def dotpath(self) -> str:
        raise NotImplementedError

    def build(self) -> Any:
        """Return what this stands for, imported now."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> LazyAttr:
        if name.startswith("__"):
            raise AttributeError(name)
        return LazyAttr(name, self, self.location)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ConfigRuntimeError(
            f"{self.dotpath} is only a stand-in in a config and cannot be called", at=self.location or "",
            hint="write dict(type=..., ...) and let the registry build it",
        )  # fmt: skip

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.dotpath == other.dotpath

    def __hash__(self) -> int:
        return hash(self.dotpath)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class LazyObject(_StandIn):
    """``from torch.optim import SGD`` → ``LazyObject("torch.optim", "SGD")``.

    ``module`` may be a list: ``import a.b`` and ``import a.c`` make one ``LazyObject(["a.b", "a.c"])``, for ``a``.
    """

    def __init__(self, module: str | Sequence[str], imported: str | None = None, location: str | None = None) -> None:
        names = [module] if isinstance(module, str) else module
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"module should be `str`, `list`, or `tuple` of str, but got {type(module)}")
        if imported is not None and not isinstance(imported, str):
            raise TypeError(f"imported should be `str`, but got {type(imported)}")
        self._module, self._imported, self.location = module, imported, location

    @property
    def module(self) -> str:
        """Return the module that is imported; the top package when several are."""
        return self._module if isinstance(self._module, str) else self._module[0].split(".")[0]

    @property
    def dotpath(self) -> str:
        return f"{self.module}.{self._imported}" if self._imported else self.module

    def build(self) -> Any:
        """Return what this stands for, imported now."""
        try:
            for name in [self._module] if isinstance(self._module, str) else self._module:
                module = importlib.import_module(name)
            if not isinstance(self._module, str):
                module = importlib.import_module(self.module)
            return module if self._imported is None else attribute_of(module, self._imported)
        except (ImportError, AttributeError) as error:
            raise _failed(self.dotpath, self.location, error) from error

    def __str__(self) -> str:
        return self._imported or self.module

    def __deepcopy__(self, memo: Any) -> LazyObject:
        return LazyObject(self._module, self._imported, self.location)


class LazyAttr(_StandIn):
    """An attribute of a stand-in: ``torch.nn.GELU`` after ``import torch``."""

    def __init__(self, name: str, source: _StandIn, location: str | None = None) -> None:
        self.name, self.source, self.location = name, source, location

    @property
    def module(self) -> str:
        """Return the dotted path of the owner."""
        return self.source.dotpath

    @property
    def dotpath(self) -> str:
        return f"{self.module}.{self.name}"

    def build(self) -> Any:
        """Return what this stands for, imported now."""
        found = self.source.build()
        try:
            return attribute_of(found, self.name)
        except (ImportError, AttributeError) as error:
            raise _failed(self.dotpath, self.location, error) from error

    def __str__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: Any) -> LazyAttr:
        return LazyAttr(self.name, self.source, self.location)


LAZY = (LazyObject, LazyAttr)


@contextmanager
def read_base() -> Iterator[None]:
    """Mark the imports of a config's bases: ``with read_base(): from .base import *``."""
    yield


def built(value: Any) -> Any:
    """Return what a stand-in stands for; any other value as it is."""
    return value.build() if isinstance(value, LAZY) else value


def named(value: Any) -> Any:
    """Return nested plain dicts, lists and tuples, with stand-ins as their dotted names."""
    if isinstance(value, LAZY):
        return value.dotpath
    if isinstance(value, dict):
        return {key: named(item) for key, item in dict.items(value)}
    if type(value) in (list, tuple):
        return type(value)(named(item) for item in value)
    return value


def attribute_of(owner: Any, name: str) -> Any:
    """Return ``owner.name``; of a module also its submodule of that name, imported now."""
    try:
        return getattr(owner, name)
    except AttributeError:
        if not hasattr(owner, "__path__"):
            raise
        return importlib.import_module(f"{owner.__name__}.{name}")


def _failed(what: str, location: str | None, error: Exception) -> ImportError:
    kind = ConfigMissingModule if isinstance(error, ModuleNotFoundError) else ConfigImportError
    return kind(f"Failed to import {what} in {location}: {error}", at=location or "")
