"""Collates samples into a batch where torch's default does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate


def stack(samples: list[Any]) -> Any:
    """Stack samples as torch's ``default_collate`` does. Whole numbers, as labels are, go through numpy, which is
    faster.

    >>> stack([(torch.zeros(2), 3), (torch.ones(2), 4)])[1]
    tensor([3, 4])
    """
    if type(samples[0]) is tuple and len({len(sample) for sample in samples}) == 1:
        return [_column(values) for values in zip(*samples, strict=True)]
    return _column(samples)


def _column(values: Sequence[Any]) -> Any:
    first = type(values[0])
    if first is Tensor:
        return torch.stack(values)  # type: ignore[arg-type]
    if first is int:
        numbers = np.array(values)
        # Numbers beyond 64 bits become objects.
        if numbers.dtype == np.int64:
            return torch.from_numpy(numbers)
    return default_collate(values)  # type: ignore[arg-type]


class Pad:
    """Stacks sequences of different lengths, padded with ``value`` at the end; everything else as torch does."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def __call__(self, samples: list[Any]) -> Any:
        first = samples[0]
        if isinstance(first, Mapping):
            return {key: self([sample[key] for sample in samples]) for key in first}
        if isinstance(first, tuple | list):
            return tuple(self(list(parts)) for parts in zip(*samples, strict=True))
        if isinstance(first, Tensor) and len({sample.shape for sample in samples}) > 1:
            return pad_sequence(samples, batch_first=True, padding_value=self.value)
        return default_collate(samples)


class Lists:
    """Keeps samples apart: a batch is a list per part, for images of different sizes and the like."""

    def __call__(self, samples: list[Any]) -> Any:
        first = samples[0]
        if isinstance(first, Mapping):
            return {key: [sample[key] for sample in samples] for key in first}
        if isinstance(first, tuple | list):
            return tuple(list(parts) for parts in zip(*samples, strict=True))
        return list(samples)


class CutMix:
    """Puts a rectangle of another image of the batch into every image, and gives the target as a share of each class.

    For losses that take probabilities, as ``CrossEntropyLoss`` does. ``alpha`` is that of the Beta distribution. With
    ``mixup`` above 0 a batch is mixed as :class:`Mixup` does instead, one time in two.
    """

    def __init__(self, classes: int, alpha: float = 1.0, mixup: float = 0.0) -> None:
        self.classes, self.alpha = classes, alpha
        self._mixup = Mixup(classes, mixup) if mixup > 0 else None

    def __call__(self, samples: list[Any]) -> tuple[Tensor, Tensor]:
        if self._mixup is not None and float(torch.rand(())) < 0.5:
            return self._mixup(samples)
        inputs, labels = default_collate(samples)
        share = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
        height, width = inputs.shape[-2:]
        top, bottom = _span(height, (1 - share) ** 0.5)
        left, right = _span(width, (1 - share) ** 0.5)
        other = torch.randperm(len(inputs))
        mixed = inputs.clone()
        mixed[..., top:bottom, left:right] = inputs[other][..., top:bottom, left:right]
        # The area itself, not `share`: the rectangle is cut off at the borders.
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        targets = torch.nn.functional.one_hot(labels, self.classes).to(inputs.dtype)
        return mixed, kept * targets + (1 - kept) * targets[other]


def _span(size: int, share: float) -> tuple[int, int]:
    """Draw a random interval of a share of ``size``, clipped at the borders."""
    half, middle = int(size * share) // 2, int(torch.randint(size, ()))
    return max(0, middle - half), min(size, middle + half)


class Mixup:
    """Mixes every sample with another of its batch and gives the target as a share of each class.

    For losses that take probabilities, as ``CrossEntropyLoss`` does. ``alpha`` is that of the Beta distribution.
    """

    def __init__(self, classes: int, alpha: float = 0.2) -> None:
        self.classes, self.alpha = classes, alpha

    def __call__(self, samples: list[Any]) -> tuple[Tensor, Tensor]:
        inputs, labels = default_collate(samples)
        share = torch.distributions.Beta(self.alpha, self.alpha).sample()
        other = torch.randperm(len(inputs))
        targets = torch.nn.functional.one_hot(labels, self.classes).to(inputs.dtype)
        return share * inputs + (1 - share) * inputs[other], share * targets + (1 - share) * targets[other]
