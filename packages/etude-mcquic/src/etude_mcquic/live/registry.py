"""McQuic's registries, which are classes: ``OptimizerRegistry``, ``HookRegistry`` and others."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, ItemsView, Iterable, KeysView, ValuesView
from functools import partial
from typing import Any, ClassVar, TypeVar

import yaml

from etude.checkpoint.formats.background import all_ours
from etude.errors import ConfigError
from etude.errors.spelling import suggest

T = TypeVar("T")


class Registry:
    """The base of registries. Each subclass has its own table; registering a name again replaces the entry."""

    _map: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._map = {}

    @classmethod
    def register(cls, key: str | T) -> Any:
        """Register an object: ``@R.register``, ``@R.register("name")`` or ``R.register("name")(object)``."""
        if isinstance(key, str):
            return cls._register_as(key)
        cls._map[key.__name__] = key  # type: ignore[attr-defined]
        return key

    @classmethod
    def _register_as(cls, name: str) -> Callable[[T], T]:
        def register(value: T) -> T:
            cls._map[name] = value
            return value

        return register

    @classmethod
    def get(cls, key: str, logger: Any = logging.root) -> Any:
        cls._fill()
        if key not in cls._map:
            # Spelt as in McQuic, without the key that is missing.
            raise KeyError(f"No entry for {cls.__name__}. Avaliable entries are: \n{cls.summary()}.")
        value = cls._map[key]
        logger.debug('Get <%s> from "%s".', _full_name(value), cls.__name__)
        return value

    @classmethod
    def has(cls, key: str) -> bool:
        return key in cls._map

    @classmethod
    def _fill(cls) -> None:
        """Register McQuic's own entries, for a script that asks before anything was trained."""
        if cls in REGISTRIES:
            importlib.import_module("etude_mcquic.live.builtin")

    @classmethod
    def keys(cls) -> KeysView[str]:
        return cls._map.keys()

    @classmethod
    def values(cls) -> ValuesView[Any]:
        return cls._map.values()

    @classmethod
    def items(cls) -> ItemsView[str, Any]:
        return cls._map.items()

    @classmethod
    def summary(cls) -> str:
        """Return key and origin of every entry as YAML, sorted and aligned."""
        cls._fill()
        if not cls._map:
            return "{}\n"
        # The width keeps yaml from breaking long lines.
        text = yaml.safe_dump({key: _full_name(value) for key, value in cls._map.items()}, width=10**6)
        if "" in cls._map:
            return text
        pairs = [line.rsplit(": ", 1) for line in text.splitlines()]
        width = max(len(key) for key, _ in pairs)
        return "".join(f"{key:<{width}}: {value}\n" for key, value in pairs) + "\n"


def _full_name(value: Any) -> str:
    """Return module and name; of a partial those of its function, of an instance those of its class."""
    while isinstance(value, partial):
        value = value.func
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


class ModuleRegistry(Registry):
    """Blocks of the model."""


class ValueTunerRegistry(Registry):
    """Values that change over time."""


class LrSchedulerRegistry(Registry):
    """Learning-rate schedulers, stepped once per epoch."""


class OptimizerRegistry(Registry):
    """Optimizers."""


class LossRegistry(Registry):
    """Losses: rate and distortion."""


class HookRegistry(Registry):
    """Hooks for the trainer."""


REGISTRIES = (ModuleRegistry, ValueTunerRegistry, LrSchedulerRegistry, OptimizerRegistry, LossRegistry, HookRegistry)


def find(registry: type[Registry], key: str, *, at: Any = "", others: Iterable[str] = (), logger: Any = None) -> Any:
    """Return the entry ``key``, or the object of a dotted path. Raises a ``ConfigError`` if neither exists."""
    if registry.has(key):
        return registry.get(key, logger or logging.root)
    module, _, attribute = key.rpartition(".")
    if not module:
        hint = suggest(key, [*registry.keys(), *others])
        raise ConfigError(f"{registry.__name__} has no entry {key!r}", at=str(at), hint=hint)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{key!r}: {error}", at=str(at)) from error
    except AttributeError as error:
        hint = suggest(attribute, vars(importlib.import_module(module)))
        raise ConfigError(f"the module {module} has no {attribute!r}", at=str(at), hint=hint) from error


_SERVED: set[object] = set()


def served_as(module: str) -> Callable[[T], T]:
    """Set ``__module__`` of a class to the original's module, so that summaries read as in McQuic."""

    def rename(value: T) -> T:
        value.__module__ = module
        _SERVED.add(value)
        return value

    return rename


def is_ours(actor: object) -> bool:
    """Return whether the class of ``actor`` is Étude's own, under whatever name it is served."""
    return type(actor) in _SERVED or all_ours([actor])
