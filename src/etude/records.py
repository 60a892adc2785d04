"""Frozen records that start fast.

``@record`` makes what ``@dataclass(frozen=True)`` makes; :func:`dataclasses.replace`, ``fields`` and ``asdict`` take
its objects. A dataclass compiles six methods for each class, which takes a large part of the time that ``etude check``
needs to start; all records share their methods. In return an object takes longer to make. So what is made in every
step stays a dataclass, and so do components, which configs call.

>>> @record
... class Point:
...     x: int
...     y: int = 0
>>> Point(3)
Point(x=3, y=0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from inspect import Parameter, Signature
from typing import Any, TypeVar, dataclass_transform, overload

Kind = TypeVar("Kind", bound=type)


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Kind) -> Kind: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, kw_only: bool = False) -> Callable[[Kind], Kind]: ...
def record(cls: Any = None, *, kw_only: bool = False) -> Any:
    """Make the class a frozen record of its annotated fields."""
    if cls is None:
        return lambda cls: record_of(cls, kw_only=kw_only)
    return record_of(cls, kw_only=kw_only)


def record_of(cls: Any, *, kw_only: bool) -> Any:
    """Let the class find its fields as a dataclass does, and give it the shared methods that it does not define."""
    cls = dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    fields = cls.__dataclass_fields__
    cls._positional = tuple(name for name, one in fields.items() if not one.kw_only)
    cls._defaults = {name: one.default for name, one in fields.items() if one.default is not MISSING}
    cls._factories = {name: one.default_factory for name, one in fields.items() if one.default_factory is not MISSING}
    cls.__signature__ = Signature(
        [_parameter(one) for one in sorted(fields.values(), key=lambda one: one.kw_only)], return_annotation=None
    )
    for name in _METHODS:
        if name not in vars(cls):
            setattr(cls, name, vars(_Shared)[name])
    return cls


def _parameter(one: Field[Any]) -> Parameter:
    default = Parameter.empty if one.default is MISSING else one.default
    if one.default_factory is not MISSING:
        default = ...
    kind = Parameter.KEYWORD_ONLY if one.kw_only else Parameter.POSITIONAL_OR_KEYWORD
    return Parameter(one.name, kind, default=default, annotation=one.type)


class _Shared:
    """The methods of all records."""

    __dataclass_fields__: dict[str, Field[Any]]
    _positional: tuple[str, ...]
    _defaults: dict[str, Any]
    _factories: dict[str, Callable[[], Any]]

    def __init__(self, *args: Any, **given: Any) -> None:
        values, wanted = self.__dict__, self.__dataclass_fields__.keys()  # assigning would raise
        values.update(zip(self._positional, args, strict=False))
        if len(args) > len(self._positional) or not values.keys().isdisjoint(given):
            raise _wrong_call(self, args, given)
        values.update(given)
        if values.keys() != wanted:
            for name in self._defaults.keys() - values.keys():
                values[name] = self._defaults[name]
            for name in self._factories.keys() - values.keys():
                values[name] = self._factories[name]()
            if values.keys() != wanted:
                raise _wrong_call(self, args, given)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({inside})"

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([record.__dict__[name] for name in record.__dataclass_fields__])


def _wrong_call(record: Any, args: tuple[Any, ...], given: dict[str, Any]) -> TypeError:
    """Return the error of a call whose arguments are not those of the fields."""
    name, places, fields = type(record).__qualname__, record._positional, record.__dataclass_fields__
    if len(args) > len(places):
        return TypeError(f"{name}() takes {len(places)} positional arguments but {len(args)} were given")
    for key in given:
        if key in places[: len(args)]:
            return TypeError(f"{name}() got multiple values for argument {key!r}")
        if key not in fields:
            return TypeError(f"{name}() got an unexpected keyword argument {key!r}")
    missing = ", ".join(repr(key) for key in fields if key not in record.__dict__)
    return TypeError(f"{name}() missing required arguments: {missing}")
