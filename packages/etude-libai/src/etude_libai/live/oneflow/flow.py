"""``import oneflow as flow``: torch, with OneFlow's extra arguments (placements, ``matmul(transpose_b=True)``).

Names that are not here are torch's.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from etude_libai.live.oneflow import tensors
from etude_libai.live.oneflow.placements import get_layer_placement, get_nd_sbp, placement, sbp
from etude_libai.live.oneflow.promotions import (
    log_softmax,
    masked_fill,
    mean,
    neg,
    negative,
    scatter,
    softmax,
    sub,
    where,
)  # fmt: skip

__all__ = [
    "get_layer_placement", "get_nd_sbp", "log_softmax", "masked_fill", "mean", "neg", "negative", "placement", "sbp",
    "scatter", "softmax", "sub", "to_global", "to_local", "where",
]  # fmt: skip

# LiBai's projects use ``np.float``, ``np.int`` and so on, which newer numpy has removed.
for _type in (float, int, object, complex):
    if _type.__name__ not in vars(numpy):
        setattr(numpy, _type.__name__, _type)

#: The version of OneFlow that user code sees.
__version__ = "0.9.0"


class _AnyTensor(type(torch.Tensor)):  # type: ignore[misc]
    """Makes ``flow.Tensor`` mean ``torch.Tensor``, except for a call with None."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.empty(0) if len(args) == 1 and args[0] is None else torch.Tensor(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, torch.Tensor)

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(torch.Tensor, name, value)


class Tensor(torch.Tensor, metaclass=_AnyTensor):
    """``oneflow.Tensor``. ``Tensor(None)`` has no data: processes have it that wait for the data of another one."""


to_global, to_local = tensors.to_global, tensors.to_local


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(torch, name)


for _name in (
    "tensor", "zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "arange", "eye", "linspace",
    "normal",
):  # fmt: skip
    globals()[_name] = tensors.with_placement(getattr(torch, _name))


def matmul(
    input: torch.Tensor,
    other: torch.Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
) -> torch.Tensor:
    """Return ``alpha`` times the product of two matrices, each optionally transposed."""
    left = input.transpose(-2, -1) if transpose_a else input
    if transpose_b and other.ndim == 2:
        product = torch.nn.functional.linear(left, other)
    else:
        product = torch.matmul(left, other.transpose(-2, -1) if transpose_b else other)
    return product if alpha == 1.0 else product * alpha


def save(obj: Any, path_or_buffer: Any, *args: Any, global_dst_rank: int | None = None, **kwargs: Any) -> None:
    torch.save(obj, path_or_buffer, *args, **kwargs)


def load(path: Any, map_location: Any = None, *, global_src_rank: int | None = None, **kwargs: Any) -> Any:
    return torch.load(path, map_location=map_location, **kwargs)
