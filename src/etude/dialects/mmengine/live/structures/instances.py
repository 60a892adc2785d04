"""Things of which a sample has several: every field has one entry per instance."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, Self

import numpy as np
import torch

from etude.dialects.mmengine.live.structures.element import _PRIVATE, BaseDataElement

_INDEX = (str, int, slice, list, np.ndarray, torch.Tensor)


class InstanceData(BaseDataElement):
    """Fields of equal length, indexed together: ``instances[mask]``, ``instances[2]``, ``instances[:3]``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PRIVATE:
            assert isinstance(value, Sized), "value must contain `__len__` attribute"
            if len(self) > 0:
                assert len(value) == len(self), (
                    f"The length of values {len(value)} is not consistent with the length of this "
                    f":obj:`InstanceData` {len(self)}"
                )
        super().__setattr__(name, value)

    __setitem__ = __setattr__

    def __len__(self) -> int:
        return len(self.values()[0]) if len(self._data_fields) else 0

    def __getitem__(self, item: Any) -> Any:
        """A field by name, or the chosen instances."""
        assert isinstance(item, _INDEX), f"cannot be indexed by {type(item)}"
        if isinstance(item, str):
            return getattr(self, item)
        if isinstance(item, int):
            if not -len(self) <= item < len(self):
                raise IndexError(f"Index {item} out of range!")
            item = slice(item, None, len(self))
        if isinstance(item, slice):
            return self._chosen({name: value[item] for name, value in self.items()})
        return self._at(_index(item))

    def _at(self, index: torch.Tensor) -> Self:
        assert index.dim() == 1, "Only support to get the values along the first dimension."
        if index.dtype in (torch.bool, torch.uint8):
            assert len(index) == len(self), (
                f"The shape of the input(BoolTensor) {len(index)} does not match the shape of the indexed tensor "
                f"{len(self)} at first dimension."
            )
        return self._chosen({name: _taken(name, value, index) for name, value in self.items()})

    def _chosen(self, fields: dict[str, Any]) -> Self:
        made = type(self)(metainfo=self.metainfo)
        made.set_data(fields)
        return made

    @staticmethod
    def cat(instances_list: Sequence[InstanceData]) -> InstanceData:
        """All instances of several containers with the same fields."""
        assert len(instances_list) > 0, "there is nothing to concatenate"
        assert all(isinstance(instances, InstanceData) for instances in instances_list)
        first = instances_list[0]
        if len(instances_list) == 1:
            return first
        keys = set(first.all_keys())
        assert all(set(instances.all_keys()) == keys for instances in instances_list), (
            "There are different keys in `instances_list`: make sure that all elements have the exact same keys"
        )
        made = type(first)(metainfo=first.metainfo)
        made.set_data({name: _joined([getattr(each, name) for each in instances_list]) for name in first.keys()})  # noqa: SIM118
        return made


def _index(item: Any) -> torch.Tensor:
    if isinstance(item, torch.Tensor):
        assert not item.is_floating_point(), f"instances are chosen by integers or a mask, not by {item.dtype}"
        return item
    found = np.asarray(item)
    if found.size == 0:
        found = found.astype(np.int64)
    return torch.from_numpy(found.astype(np.int64) if found.dtype == np.int32 else found)


def _taken(name: str, value: Any, index: torch.Tensor) -> Any:
    if isinstance(value, torch.Tensor):
        return value[index.to(value.device)]
    if isinstance(value, np.ndarray):
        return value[index.cpu().numpy()]
    mask = index.dtype in (torch.bool, torch.uint8)
    places = (index.nonzero().view(-1) if mask else index).tolist()
    parts = [value[slice(place, None, len(value))] for place in places] or [value[slice(None, 0, None)]]
    try:
        return _joined(parts)
    except ValueError as error:
        raise ValueError(f"The type of `{name}` is `{type(value)}`, which has no attribute of `cat`") from error


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(values, dim=0)
    if isinstance(first, np.ndarray):
        return np.concatenate(values, axis=0)
    if isinstance(first, (str, list, tuple)):
        joined: Any = first[:]
        for value in values[1:]:
            joined = joined + value
        return joined
    if hasattr(first, "cat"):
        return first.cat(values)
    raise ValueError(f"Can not concat {type(first)}")
