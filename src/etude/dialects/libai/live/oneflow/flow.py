"""What LiBai's users call of OneFlow beside names that torch has too: placements, splits, tensors made on them.

Here a process holds whole tensors on one device. A placement is that device, how a tensor is split means nothing, and a
"global" tensor is the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from etude.dialects.libai.live import distributed as dist


@dataclass(frozen=True)
class placement:
    """``flow.placement("cuda", ranks=[0])``: a kind of device, and the processes that hold a part."""

    type: str = "cpu"
    ranks: Any = (0,)

    @staticmethod
    def all(type: str) -> placement:
        return placement(type, tuple(range(dist.get_world_size())))

    @property
    def device(self) -> torch.device:
        """The device of this process; the CPU where there is no CUDA."""
        if self.type == "cuda" and not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device(self.type)


@dataclass(frozen=True)
class sbp:
    """How a tensor is split: ``flow.sbp.broadcast``, ``flow.sbp.split(0)``, ``flow.sbp.partial_sum``."""

    name: str

    def __call__(self) -> sbp:
        return self

    @staticmethod
    def split(dim: int) -> sbp:
        return sbp(f"split({dim})")

    def __repr__(self) -> str:
        return f"oneflow.sbp.{self.name}"


sbp.broadcast, sbp.partial_sum = sbp("broadcast"), sbp("partial_sum")  # type: ignore[attr-defined]


def _made(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(make)
    def made(*args: Any, placement: Any = None, sbp: Any = None, **kwargs: Any) -> torch.Tensor:
        if placement is not None:
            kwargs["device"] = placement.device
        return make(*args, **kwargs)

    return made


tensor = _made(torch.tensor)
zeros = _made(torch.zeros)
ones = _made(torch.ones)
full = _made(torch.full)
empty = _made(torch.empty)
rand = _made(torch.rand)
randn = _made(torch.randn)
randint = _made(torch.randint)
randperm = _made(torch.randperm)
arange = _made(torch.arange)
eye = _made(torch.eye)
linspace = _made(torch.linspace)


def to_global(self: torch.Tensor, placement: Any = None, sbp: Any = None, **kwargs: Any) -> torch.Tensor:
    """The tensor, on the device of ``placement``."""
    return self if placement is None else self.to(placement.device)


def to_local(self: torch.Tensor) -> torch.Tensor:
    """The tensor."""
    return self


def get_nd_sbp(sbp_list: Sequence[Any]) -> list[Any]:
    """One way of splitting for each axis of OneFlow's mesh of devices."""
    return list(sbp_list)


def get_layer_placement(layer_idx: int, device_type: str | None = None) -> placement:
    """Every layer is where the model is."""
    return placement.all(device_type or ("cuda" if torch.cuda.is_available() else "cpu"))


for _method in (to_global, to_local):
    if not hasattr(torch.Tensor, _method.__name__):
        setattr(torch.Tensor, _method.__name__, _method)
