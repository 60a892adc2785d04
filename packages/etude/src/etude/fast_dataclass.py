"""A frozen dataclass that is fast to define.

``@record`` makes what ``@dataclass(frozen=True)`` makes, and ``@record(frozen=False)`` what ``@dataclass`` makes;
:func:`dataclasses.replace`, ``fields`` and ``asdict`` take its objects. A dataclass compiles six methods for each
class, and :mod:`dataclasses` imports :mod:`inspect`, which together take a large part of the time that ``etude check``
needs to start. All records share their methods, and what only other modules ask a dataclass for is made when they ask.
In return an object takes longer to make. So what is made in every step stays a dataclass, and so do components, which
configs call.

>>> @record
... class Point:
...     x: int
...     y: int = 0
>>> Point(3)
Point(x=3, y=0)
>>> replace(Point(3), y=1)
Point(x=3, y=1)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from dataclasses import Field
    from inspect import Signature

Kind = TypeVar("Kind", bound=type)
Value = TypeVar("Value")


class _Made:
    """Stands in the class for a default that every object gets anew."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Value]) -> Value:
    """Return the default of a field that ``default_factory`` makes for every object."""
    return _Made(default_factory)  # type: ignore[return-value]


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Kind) -> Kind: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, kw_only: bool = False, frozen: bool = True, eq: bool = True) -> Callable[[Kind], Kind]: ...
def record(cls: Any = None, *, kw_only: bool = False, frozen: bool = True, eq: bool = True) -> Any:
    """Make the class a record of its annotated fields; with ``eq=False``, one whose objects equal only themselves."""
    methods = ["__init__", "__repr__"]
    methods += ["__eq__", "__hash__"] if eq else []
    methods += ["__setattr__", "__delattr__"] if frozen else []

    def make(cls: Any) -> Any:
        _find_fields(cls, kw_only=kw_only)
        for name in methods:
            if name not in vars(cls):
                setattr(cls, name, vars(_Shared)[name])
        if eq and not frozen:
            cls.__hash__ = None
        return cls

    return make if cls is None else make(cls)


def replace(record: Value, **changes: Any) -> Value:
    """Return a record that differs from another in the given fields."""
    values = record.__dict__
    return type(record)(**{name: values[name] for name in record._record_fields} | changes)  # type: ignore[attr-defined]


def field_names(value: object) -> tuple[str, ...]:
    """Return the names of the fields of a record; none for any other object."""
    return () if isinstance(value, type) else tuple(getattr(value, "_record_fields", ()))


def is_dataclass(value: object) -> bool:
    """Return what :func:`dataclasses.is_dataclass` does, without importing its module."""
    return hasattr(value if isinstance(value, type) else type(value), "__dataclass_fields__")


def _find_fields(cls: Any, *, kw_only: bool) -> None:
    """Note the fields of a class where the shared methods look for them."""
    cls._record_fields = dict(cls.__annotations__)
    cls._positional = cls.__match_args__ = () if kw_only else tuple(cls._record_fields)  # type: ignore[misc]
    given = {name: vars(cls)[name] for name in cls._record_fields if name in vars(cls)}
    cls._factories = {name: default.make for name, default in given.items() if isinstance(default, _Made)}
    cls._defaults = {name: default for name, default in given.items() if name not in cls._factories}
    for name in cls._factories:
        delattr(cls, name)
    cls.__dataclass_fields__ = _OnDemand(_dataclass_fields)
    cls.__signature__ = _OnDemand(_signature)


class _Shared:
    """The methods of all records."""

    #: Field → annotation.
    _record_fields: dict[str, str]
    _positional: tuple[str, ...]
    _defaults: dict[str, Any]
    _factories: dict[str, Callable[[], Any]]

    def __init__(self, *args: Any, **given: Any) -> None:
        values = self.__dict__  # assigning would raise
        values.update(zip(self._positional, args, strict=False))
        if len(args) > len(self._positional) or not values.keys().isdisjoint(given):
            raise _wrong_call(self, args, given)
        values.update(given)
        wanted = self._record_fields.keys()
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
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._record_fields)
        return f"{type(self).__qualname__}({inside})"

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise _frozen(f"cannot delete field {name!r}")


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([record.__dict__[name] for name in record._record_fields])


def _wrong_call(record: Any, args: tuple[Any, ...], given: dict[str, Any]) -> TypeError:
    """Return the error of a call whose arguments are not those of the fields."""
    name, places, fields = type(record).__qualname__, record._positional, record._record_fields
    if len(args) > len(places):
        return TypeError(f"{name}() takes {len(places)} positional arguments but {len(args)} were given")
    for key in given:
        if key in places[: len(args)]:
            return TypeError(f"{name}() got multiple values for argument {key!r}")
        if key not in fields:
            return TypeError(f"{name}() got an unexpected keyword argument {key!r}")
    missing = ", ".join(repr(key) for key in fields if key not in record.__dict__)
    return TypeError(f"{name}() missing required arguments: {missing}")


def _frozen(message: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(message)


class _OnDemand:
    """An attribute of a class that is made when it is asked for."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def __get__(self, instance: object, cls: type) -> Any:
        return self.make(cls)


@cache
def _dataclass_fields(cls: Any) -> dict[str, Field[Any]]:
    """Return the fields as a dataclass has them."""
    from dataclasses import field, make_dataclass

    defaults = {name: field(default=default) for name, default in cls._defaults.items()}
    defaults |= {name: field(default_factory=make) for name, make in cls._factories.items()}
    fields = [(name, kind, defaults.get(name, field())) for name, kind in cls._record_fields.items()]
    twin: Any = make_dataclass(cls.__name__, fields, init=False, repr=False, eq=False, kw_only=not cls._positional)
    return dict(twin.__dataclass_fields__)


@cache
def _signature(cls: Any) -> Signature:
    from inspect import Parameter, Signature

    kind = Parameter.POSITIONAL_OR_KEYWORD if cls._positional else Parameter.KEYWORD_ONLY
    defaults = {**dict.fromkeys(cls._factories, ...), **cls._defaults}
    parameters = [
        Parameter(name, kind, default=defaults.get(name, Parameter.empty), annotation=annotation)
        for name, annotation in cls._record_fields.items()
    ]
    return Signature(parameters, return_annotation=None)
