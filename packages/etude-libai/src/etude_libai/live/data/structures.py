"""LiBai's samples, an ``Instance`` of named ``DistTensorData`` fields each, and the batches made of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from etude.errors import DataError
from etude_libai.live import topology
from etude_libai.live.oneflow.placements import get_layer_placement, get_nd_sbp
from etude_libai.live.oneflow.placements import sbp as flow_sbp


@dataclass
class DistTensorData:
    """A tensor of a sample, with how a batch of it is split over processes, and the layer that needs it."""

    tensor: torch.Tensor
    sbp_list: list[str] = field(default_factory=lambda: ["split_0", "broadcast"])
    placement_idx: int = 0

    def to_global(self, sbp: Any = None, placement: Any = None, device_type: str = "cuda") -> None:
        """Move the tensor to the device. Where tensors are split, make it global, as ``sbp_list`` says.

        All of a batch comes from the first stage, whose processes drew it, and goes from there to ``placement_idx``.
        """
        self.tensor = self.tensor.to(device_type, non_blocking=True)
        if not topology.splits():
            return
        kind = torch.device(device_type).type
        first = get_layer_placement(0, kind) if placement is None else placement
        self.tensor = self.tensor.to_global(placement=first, sbp=get_nd_sbp(self._signature()) if sbp is None else sbp)  # type: ignore[attr-defined]
        if placement is None and self.placement_idx != 0:
            self.tensor = self.tensor.to_global(placement=get_layer_placement(self.placement_idx, kind))  # type: ignore[attr-defined]

    def _signature(self) -> list[flow_sbp]:
        """Return the signature that words such as ``split_0`` and ``broadcast`` stand for."""
        words = [word.partition("_") for word in self.sbp_list]
        return [
            flow_sbp.split(int(dim)) if word == "split" else getattr(flow_sbp, "_".join(filter(None, (word, dim))))
            for word, _, dim in words
        ]

    @staticmethod
    def stack(distTensor_lists: Sequence[DistTensorData]) -> DistTensorData:
        """Stack the tensors of several samples into one."""
        if not isinstance(distTensor_lists[0].tensor, torch.Tensor):
            raise TypeError(
                "DistTensorData.tensor must be a tensor, but got "
                f"{type(distTensor_lists[0].tensor)}. Please check the return values of `__getitem__` in dataset."
            )
        first = distTensor_lists[0]
        for item in distTensor_lists:
            assert item.tensor.shape == first.tensor.shape, (
                f"tensor shape is not equal, {item.tensor.shape} != {first.tensor.shape}"
            )
            assert item.sbp_list == first.sbp_list, f"sbp_list is not equal, {item.sbp_list} != {first.sbp_list}!"
            assert item.placement_idx == first.placement_idx, (
                f"placement_idx is not equal, {item.placement_idx} != {first.placement_idx}"
            )
        if len(distTensor_lists) == 1:
            return DistTensorData(first.tensor.unsqueeze(0), first.sbp_list, first.placement_idx)
        return DistTensorData(
            torch.stack([item.tensor for item in distTensor_lists]), first.sbp_list, first.placement_idx
        )


class Instance:
    """Holds named fields: ``Instance(images=…, labels=…)``. The names are arguments of the model's ``forward``."""

    def __init__(self, **kwargs: Any) -> None:
        self._fields: OrderedDict[str, Any] = OrderedDict()
        for name, value in kwargs.items():
            self.set(name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self.set(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "_fields" or name not in self._fields:
            raise AttributeError(f"Cannot find field '{name}' in the given Instance!")
        return self._fields[name]

    def set(self, name: str, value: Any) -> None:
        self._fields[name] = value

    def has(self, name: str) -> bool:
        return name in self._fields

    def remove(self, name: str) -> None:
        del self._fields[name]

    def get(self, name: str) -> Any:
        return self._fields[name]

    def get_fields(self) -> OrderedDict[str, Any]:
        """Return the fields by name. Changing the mapping changes the instance."""
        return self._fields

    def __len__(self) -> int:
        return len(self._fields.keys())

    def __iter__(self) -> Any:
        raise NotImplementedError("`Instances` object is not iterable!")

    @staticmethod
    def stack(instance_lists: Sequence[Instance]) -> Instance:
        """Stack samples into one batch, field by field."""
        assert all(isinstance(item, Instance) for item in instance_lists)
        assert len(instance_lists) > 0
        batch = Instance()
        for name in instance_lists[0]._fields:
            values = [item.get(name) for item in instance_lists]
            batch.set(name, _stacked(values))
        return batch

    def __str__(self) -> str:
        fields = ", ".join(f"{name}: {value}" for name, value in self._fields.items())
        return f"{type(self).__name__}(fields=[{fields}])"

    __repr__ = __str__


def _stacked(values: list[Any]) -> Any:
    """Stack a field of several samples. Lists become a list of lists."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(values)
    if isinstance(first, list):
        return values
    if hasattr(type(first), "stack"):
        return type(first).stack(values)
    raise ValueError(f"Unsupported type {type(first)} for stacking")


def to_device(data: Any, device: str | None, mixup_func: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Return the fields of a batch on ``device``, by the argument names of the model's ``forward``."""
    if isinstance(data, torch._utils.ExceptionWrapper):
        data.reraise()  # type: ignore[no-untyped-call]
    fields = data.get_fields() if isinstance(data, Instance) else data
    if not isinstance(fields, Mapping):
        raise DataError(
            f"a batch must be an Instance or a mapping of names to tensors, not a {type(fields).__name__}: "
            "the model is called with its fields by name"
        )
    if mixup_func is None:
        return {name: _placed(value, device) for name, value in fields.items()}
    if not topology.splits():
        batch = {name: _placed(value, device) for name, value in fields.items()}
        batch["images"], batch["labels"] = mixup_func(batch["images"], batch["labels"])
        return batch
    # What processes mix is their own samples, before they are pieces of a batch.
    local = {
        name: value if isinstance(value, DistTensorData) else DistTensorData(value) for name, value in fields.items()
    }
    mixed = mixup_func(*(local[name].tensor.to(device) for name in ("images", "labels")))
    local["images"].tensor, local["labels"].tensor = mixed
    return {name: _placed(value, device) for name, value in local.items()}


def _placed(value: Any, device: str | None) -> Any:
    if topology.splits() and isinstance(value, torch.Tensor) and value.ndim > 0:
        value = DistTensorData(value)
    if isinstance(value, DistTensorData):
        if device is not None:
            value.to_global(device_type=device)
        return value.tensor
    return value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) and device is not None else value
