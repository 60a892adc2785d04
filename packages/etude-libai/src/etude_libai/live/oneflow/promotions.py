"""What OneFlow computes and torch refuses: arithmetic with bools, masks and conditions of integers, means of integers.

Importing this changes ``torch.Tensor``: its methods accept what they raise an error for otherwise. Nothing that torch
accepts changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _number(value: Any) -> Any:
    """Return a bool tensor as integers, which have a difference and a sign; anything else as it is."""
    return value.long() if isinstance(value, Tensor) and value.dtype is torch.bool else value


def _bools(mask: Any) -> Any:
    return mask.bool() if isinstance(mask, Tensor) and mask.dtype is not torch.bool else mask


def _with_numbers(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(*args: Any, **kwargs: Any) -> Any:
        return compute(*map(_number, args), **kwargs)

    return computed


def _with_mask(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(input: Tensor, mask: Tensor, value: Any) -> Any:
        return compute(input, _bools(mask), value)

    return computed


sub, neg = _with_numbers(torch.sub), _with_numbers(torch.neg)
negative = neg
masked_fill = _with_mask(torch.masked_fill)


def where(condition: Tensor, *args: Any, **kwargs: Any) -> Any:
    return torch.where(_bools(condition), *args, **kwargs)


_tensor_mean, _tensor_where = Tensor.mean, Tensor.where


def mean(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return the mean. That of integers is a float."""
    counted = not (input.is_floating_point() or input.is_complex()) and kwargs.get("dtype") is None
    made: Tensor = _tensor_mean(input.float() if counted else input, *args, **kwargs)
    return made


def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """Return the softmax; without ``dim`` over the first dimension of 0, 1 or 3, and else over the second."""
    return torch.softmax(input, _implied(input) if dim is None else dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    return torch.log_softmax(input, _implied(input) if dim is None else dim, dtype=dtype)


def _implied(input: Tensor) -> int:
    return 0 if input.ndim in (0, 1, 3) else 1


def scatter(input: Tensor, dim: int, index: Tensor, src: Any, *, reduce: str | None = None) -> Tensor:
    """Return a copy with ``src``, a tensor or a number, at ``index``."""
    options: dict[str, Any] = {} if reduce is None else {"reduce": reduce}
    return torch.scatter(input, dim, index.long(), src, **options)


def cross_entropy(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return F.cross_entropy(input, _labels(target), *args, **kwargs)


def nll_loss(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return F.nll_loss(input, _labels(target), *args, **kwargs)


def _labels(target: Tensor) -> Tensor:
    """Return classes as torch takes them. Shares of classes are floats."""
    return target if target.is_floating_point() else target.long()


class CrossEntropyLoss(nn.CrossEntropyLoss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, _labels(target))


class NLLLoss(nn.NLLLoss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, _labels(target))


_view = Tensor.view


def _view_or_copy(self: Tensor, *shape: Any, **kwargs: Any) -> Tensor:
    """Return a view, or a copy where the layout allows none: OneFlow's tensors are contiguous."""
    if kwargs or (shape and isinstance(shape[0], torch.dtype)):
        return _view(self, *shape, **kwargs)
    return self.reshape(*shape)


for _name in ("__sub__", "__rsub__", "__neg__", "sub", "neg"):
    setattr(Tensor, _name, _with_numbers(getattr(Tensor, _name)))
for _name in ("masked_fill", "masked_fill_"):
    setattr(Tensor, _name, _with_mask(getattr(Tensor, _name)))
Tensor.mean = mean  # type: ignore[method-assign,assignment]
Tensor.view = _view_or_copy  # type: ignore[method-assign,assignment]
Tensor.where = lambda self, condition, other: _tensor_where(self, _bools(condition), other)  # type: ignore[method-assign]
