"""Metrics of numbers: means and distances, over every element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Mean:
    """The mean of what the model gives, or of its entry ``key``; for models that compute a measure themselves."""

    def __init__(self, key: str | None = None) -> None:
        self.key = key
        self.name = key or "mean"
        self.reset()

    def reset(self) -> None:
        self._sum: Tensor | None = None
        self._count = 0

    def update(self, output: Any, target: Tensor | None = None) -> None:
        self._add(self._measure(output if self.key is None else output[self.key], target))

    def compute(self) -> Tensor:
        return (torch.zeros(()) if self._sum is None else self._sum) / max(1, self._count)

    def _measure(self, output: Tensor, target: Tensor | None) -> Tensor:
        return output

    def _add(self, values: Tensor) -> None:
        total = values.detach().double().sum()
        self._sum = total if self._sum is None else self._sum + total
        self._count += values.numel()


class MAE(Mean):
    """The mean distance between output and target."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "mae"

    def _measure(self, output: Tensor, target: Tensor | None) -> Tensor:
        return _difference(output, target).abs()


class RMSE(Mean):
    """The root of the mean square of the distance between output and target."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "rmse"

    def _measure(self, output: Tensor, target: Tensor | None) -> Tensor:
        return _difference(output, target).square()

    def compute(self) -> Tensor:
        return super().compute().sqrt()


def _difference(output: Tensor, target: Tensor | None) -> Tensor:
    if target is None:
        raise ValueError("there is no target to compare with")
    if output.numel() != target.numel():
        raise ValueError(f"an output of shape {tuple(output.shape)} does not go with targets of {tuple(target.shape)}")
    return output.reshape(target.shape).double() - target.double()
