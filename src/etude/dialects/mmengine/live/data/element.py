"""A container of data fields and metainfo fields, both reached as attributes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableSet
from typing import Any, Self

import numpy as np
import torch

_PRIVATE = ("_metainfo_fields", "_data_fields")


class Names(MutableSet[str]):
    """A set of names that keeps the order they were added in."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = dict.fromkeys(names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, value: str) -> None:
        self._names[value] = None

    def discard(self, value: str) -> None:
        self._names.pop(value, None)

    def __repr__(self) -> str:
        return repr(set(self._names))


class BaseDataElement:
    """Data (``e.bboxes = ...``) moves, is cast and indexed with the element; metainfo (image size …) stays as it is.

    A name is one or the other. Subclasses may declare typed fields as properties over a private name
    (``bboxes`` over ``_bboxes``, set by :meth:`set_field` with ``dtype``); the private name is not listed.
    """

    _metainfo_fields: Names
    _data_fields: Names

    def __init__(self, *, metainfo: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._metainfo_fields = Names()
        self._data_fields = Names()
        if metainfo is not None:
            self.set_metainfo(metainfo=metainfo)
        if kwargs:
            self.set_data(kwargs)

    # -- fields --------------------------------------------------------------------------------------------------

    def set_metainfo(self, metainfo: dict[str, Any]) -> None:
        """Set metainfo fields, from copies of the values."""
        assert isinstance(metainfo, dict), f"metainfo should be a ``dict`` but got {type(metainfo)}"
        for name, value in copy.deepcopy(metainfo).items():
            self.set_field(name=name, value=value, field_type="metainfo", dtype=None)

    def set_data(self, data: dict[str, Any]) -> None:
        """Set data fields; properties of a subclass are used."""
        assert isinstance(data, dict), f"data should be a `dict` but got {data}"
        for name, value in data.items():
            setattr(self, name, value)

    def set_field(
        self, value: Any, name: str, dtype: type | tuple[type, ...] | None = None, field_type: str = "data"
    ) -> None:
        """Set a field whose value has to be a ``dtype``."""
        assert field_type in ("metainfo", "data")
        if dtype is not None:
            assert isinstance(value, dtype), f"{value} should be a {dtype} but got {type(value)}"
        own, other = self._data_fields, self._metainfo_fields
        if field_type == "metainfo":
            own, other = other, own
        if name in other:
            taken = "data" if field_type == "metainfo" else "metainfo"
            raise AttributeError(
                f"Cannot set {name} to be a field of {field_type} because {name} is already a {taken} field"
            )
        own.add(name)
        object.__setattr__(self, name, value)

    def update(self, instance: BaseDataElement) -> None:
        """Take over all fields of ``instance``."""
        assert isinstance(instance, BaseDataElement), f"instance should be a `BaseDataElement` but got {type(instance)}"
        self.set_metainfo(dict(instance.metainfo_items()))
        self.set_data(dict(instance.items()))

    def new(self, *, metainfo: dict[str, Any] | None = None, **kwargs: Any) -> Self:
        """An element of this kind: with the given metainfo and data, or else with one's own."""
        made = type(self)()
        made.set_metainfo(dict(self.metainfo_items()) if metainfo is None else metainfo)
        made.set_data(kwargs or dict(self.items()))
        return made

    def clone(self) -> Self:
        """An element of this kind with the same fields."""
        return self.new()

    # -- access --------------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Names of the data fields; of a property, not the private name behind it."""
        hidden = {f"_{name}" for name in self._data_fields if isinstance(getattr(type(self), name, None), property)}
        return [name for name in self._data_fields if name not in hidden]

    def values(self) -> list[Any]:
        return [getattr(self, name) for name in self.keys()]

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self.keys())

    def metainfo_keys(self) -> list[str]:
        return list(self._metainfo_fields)

    def metainfo_values(self) -> list[Any]:
        return [getattr(self, name) for name in self.metainfo_keys()]

    def metainfo_items(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self.metainfo_keys())

    def all_keys(self) -> list[str]:
        return self.metainfo_keys() + self.keys()

    def all_values(self) -> list[Any]:
        return self.metainfo_values() + self.values()

    def all_items(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self.all_keys())

    @property
    def metainfo(self) -> dict[str, Any]:
        return dict(self.metainfo_items())

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)

    def pop(self, *args: Any) -> Any:
        """``pop(name[, default])``."""
        assert len(args) < 3, "``pop`` get more than 2 arguments"
        name = args[0]
        for fields in (self._metainfo_fields, self._data_fields):
            if name in fields:
                value = getattr(self, name)
                delattr(self, name)
                return value
        if len(args) == 2:
            return args[1]
        raise KeyError(f"{name} is not contained in metainfo or data")

    def __contains__(self, item: str) -> bool:
        return item in self._data_fields or item in self._metainfo_fields

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PRIVATE:
            self._set_private(name, value)
        else:
            self.set_field(name=name, value=value, field_type="data", dtype=None)

    def _set_private(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError(f"{name} has been used as a private attribute, which is immutable.")
        object.__setattr__(self, name, value)

    def __delattr__(self, item: str) -> None:
        if item in _PRIVATE:
            raise AttributeError(f"{item} has been used as a private attribute, which is immutable.")
        object.__delattr__(self, item)
        self._metainfo_fields.discard(item)
        self._data_fields.discard(item)

    __delitem__ = __delattr__

    # -- tensors -------------------------------------------------------------------------------------------------

    def _each(self, method: str, *args: Any, **kwargs: Any) -> Self:
        """An element on whose data fields ``method`` was called, where they have it."""
        return self._mapped(lambda value: getattr(value, method)(*args, **kwargs) if hasattr(value, method) else value)

    def _mapped(self, change: Callable[[Any], Any]) -> Self:
        made = self.new()
        for name, value in self.items():
            made.set_data({name: change(value)})
        return made

    def to(self, *args: Any, **kwargs: Any) -> Self:
        return self._each("to", *args, **kwargs)

    def cpu(self) -> Self:
        return self._mapped(lambda v: v.cpu() if isinstance(v, (torch.Tensor, BaseDataElement)) else v)

    def cuda(self) -> Self:
        return self._mapped(lambda v: v.cuda() if isinstance(v, (torch.Tensor, BaseDataElement)) else v)

    def npu(self) -> Self:
        return self._mapped(lambda v: v.npu() if hasattr(v, "npu") else v)

    def detach(self) -> Self:
        return self._mapped(lambda v: v.detach() if isinstance(v, (torch.Tensor, BaseDataElement)) else v)

    def numpy(self) -> Self:
        def change(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.detach().cpu().numpy()
            return value.numpy() if isinstance(value, BaseDataElement) else value

        return self._mapped(change)

    def to_tensor(self) -> Self:
        def change(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return torch.from_numpy(value)
            return value.to_tensor() if isinstance(value, BaseDataElement) else value

        return self._mapped(change)

    def to_dict(self) -> dict[str, Any]:
        """All fields as a dict, elements inside as dicts too."""
        return {
            name: value.to_dict() if isinstance(value, BaseDataElement) else value for name, value in self.all_items()
        }

    def __repr__(self) -> str:
        meta, data = (_indented(_listed(dict(items))) for items in (self.metainfo_items(), self.items()))
        body = f"\n\n    META INFORMATION{meta}\n\n    DATA FIELDS{data}"
        return f"<{type(self).__name__}({body}\n) at {hex(id(self))}>"


def _listed(fields: dict[str, Any]) -> str:
    return "".join(f"\n{name}: {_indented(_shown(value))}" for name, value in fields.items())


def _shown(value: Any) -> str:
    return _listed(value) if isinstance(value, dict) else repr(value)


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
