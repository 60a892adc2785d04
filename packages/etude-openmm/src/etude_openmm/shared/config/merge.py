"""Merges one config over another: dicts are merged, other values replaced; ``_delete_`` drops inherited keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etude_openmm.shared.errors import ConfigAttributeError, ConfigKeyError, ConfigTypeError

DELETE = "_delete_"
#: Returns the place of a key of the child, by its dotted path; empty if it is unknown.
Where = Callable[[str], str]


def _no_place(path: str) -> str:
    return ""


def merge(
    child: dict[Any, Any], base: Any, *, list_keys: bool = False, path: str = "", where: Where = _no_place
) -> Any:
    """Return a copy of ``base`` with ``child`` merged over it. With ``list_keys``, digits are indices of lists.

    ``_delete_`` is removed only if the base has the key. Otherwise it stays, and existing configs rely on that.
    """
    made = base.copy()
    for key, value in dict.items(child):
        here = f"{path}.{key}" if path else str(key)
        if list_keys and isinstance(made, list) and str(key).isdigit():
            made[int(key)] = _merge_element(made, int(key), value, here)
        elif isinstance(value, dict):
            made[key] = _dict_over(made, key, value, list_keys, here, where)
        else:
            made[key] = value
    return made


def _merge_element(items: list[Any], index: int, value: Any, path: str) -> Any:
    if index >= len(items):
        raise ConfigKeyError(f"{path}: Index {index} exceeds the length of list {items}")
    if not isinstance(value, dict):
        raise ConfigAttributeError(
            f"{path}: an element of a list can be changed from outside only when it is a dict",
            hint="give the whole list instead",
        )
    return merge(value, items[index], list_keys=True, path=path)


def _dict_over(made: Any, key: Any, value: dict[Any, Any], list_keys: bool, path: str, where: Where) -> Any:
    if key not in made:
        return value
    if value.get(DELETE, False):
        return _without_delete(value)
    own = _stored_value(made, key)
    if not isinstance(own, (dict, list) if list_keys else dict):
        raise ConfigTypeError(
            f"{path}={value} in child config cannot inherit from base because {key} is a dict in the child config but "
            f"is of type {type(own)} in base config",
            at=where(path),
            hint=f"set `{DELETE}=True` in the child to replace it",
        )
    return merge(_without_delete(value), own, list_keys=list_keys, path=path, where=where)


def _stored_value(made: Any, key: Any) -> Any:
    return dict.__getitem__(made, key) if isinstance(made, dict) else made[key]


def _without_delete(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: item for key, item in dict.items(value) if key != DELETE}


def nested(options: dict[str, Any]) -> dict[str, Any]:
    """Convert dotted keys to nested dicts: ``{"a.b": 1}`` → ``{"a": {"b": 1}}``."""
    made: dict[str, Any] = {}
    for dotted, value in options.items():
        *above, last = dotted.split(".")
        inner = made
        for name in above:
            following = inner.setdefault(name, {})
            if not isinstance(following, dict):
                raise ConfigTypeError(f"{dotted}: {name} is also set to {following!r}")
            inner = following
        inner[last] = value
    return made
