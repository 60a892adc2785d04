"""``@configurable``: a constructor or function that can take its arguments from a config."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def configurable(init_func: Callable[..., Any] | None = None, *, from_config: Callable[..., Any] | None = None) -> Any:
    """Decorate ``__init__`` of a class with ``from_config(cls, cfg, …)``, or a function with ``from_config=f``."""
    if init_func is not None:
        return _decorate_init(init_func)
    if from_config is None:
        return configurable
    assert inspect.isfunction(from_config), "from_config argument of configurable must be a function!"
    return functools.partial(_decorate_function, from_config=from_config)


def is_configurable(target: Any) -> bool:
    """Return whether ``target`` is decorated with ``@configurable``, Étude's or the original's."""
    wrapped = getattr(target, "__init__", None) if inspect.isclass(target) else target
    return hasattr(wrapped, "__wrapped__") and hasattr(target, "from_config")


def _decorate_init(init_func: Callable[..., Any]) -> Callable[..., Any]:
    assert inspect.isfunction(init_func) and init_func.__name__ == "__init__", (
        "Incorrect use of @configurable. Check API documentation for examples."
    )

    @functools.wraps(init_func)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        method = getattr(type(self), "from_config", None)
        if method is None:
            raise AttributeError("Class with @configurable must have a 'from_config' classmethod.")
        if not inspect.ismethod(method):
            raise TypeError("Class with @configurable must have a 'from_config' classmethod.")
        if _given_config(args, kwargs):
            init_func(self, **_arguments_from_config(method, *args, **kwargs))
        else:
            init_func(self, *args, **kwargs)

    return wrapped


def _decorate_function(function: Callable[..., Any], *, from_config: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if _given_config(args, kwargs):
            return function(**_arguments_from_config(from_config, *args, **kwargs))
        return function(*args, **kwargs)

    wrapped.from_config = from_config  # type: ignore[attr-defined]
    return wrapped


def _arguments_from_config(from_config: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    parameters = inspect.signature(from_config).parameters
    first = next(iter(parameters), None)
    if first != "cfg":
        name = from_config.__name__ if inspect.isfunction(from_config) else f"{from_config.__self__}.from_config"  # type: ignore[attr-defined]
        raise TypeError(f"{name} must take 'cfg' as the first argument!")
    takes_all = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
    if takes_all:
        return dict(from_config(*args, **kwargs))
    extra = {key: kwargs.pop(key) for key in list(kwargs) if key not in parameters}
    return {**from_config(*args, **kwargs), **extra}


def _given_config(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return (bool(args) and _is_config(args[0])) or _is_config(kwargs.get("cfg"))


def _is_config(value: Any) -> bool:
    return any(kind.__name__ in ("DictConfig", "CfgNode") for kind in type(value).__mro__)
