"""Metrics of numbers: means and distances, over every element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Mean:
    """The mean of what the model gives, or of its entry ``key``; for models that compute a measure themselves."""

    sums = ("_sum", "_count")

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


class Perplexity(Mean):
    """The exponential of the mean cross entropy of tokens: ``output`` has scores per token and word, ``target`` words.

    Tokens whose target is ``ignore`` do not count.
    """

    def __init__(self, ignore: int = -100) -> None:
        super().__init__()
        self.name, self.ignore = "perplexity", ignore

    def _measure(self, output: Tensor, target: Tensor | None) -> Tensor:
        if target is None:
            raise ValueError("there is no target to compare with")
        # Language models give (batch, tokens, words), losses of torch want (batch, words, tokens).
        words_last = output.ndim == target.ndim + 1 and output.shape[:-1] == target.shape
        scores = output.reshape(-1, output.shape[-1]) if words_last else output.movedim(1, -1).flatten(0, -2)
        losses = torch.nn.functional.cross_entropy(scores.float(), target.flatten(), reduction="none")
        return losses[target.flatten() != self.ignore]

    def compute(self) -> Tensor:
        return super().compute().exp()


class R2:
    """The share of the targets' variance that the output explains: 1 is perfect, 0 as good as their mean.

    >>> metric = R2()
    >>> metric.update(torch.tensor([2.5, 0.0, 2.0, 8.0]), torch.tensor([3.0, -0.5, 2.0, 7.0]))
    >>> round(float(metric.compute()), 4)
    0.9486
    """

    name = "r2"

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._sums: Tensor | None = None
        self._count = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        rest, wanted = _difference(output, target).square().sum(), target.detach().double()
        sums = torch.stack([rest.detach(), wanted.sum(), wanted.square().sum()])
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += target.numel()

    def compute(self) -> Tensor:
        if self._sums is None:
            return torch.tensor(float("nan"))
        rest, total, squares = self._sums.unbind()
        return 1 - rest / (squares - total.square() / self._count)


def _difference(output: Tensor, target: Tensor | None) -> Tensor:
    if target is None:
        raise ValueError("there is no target to compare with")
    if output.numel() != target.numel():
        raise ValueError(f"an output of shape {tuple(output.shape)} does not go with targets of {tuple(target.shape)}")
    return output.reshape(target.shape).double() - target.double()
