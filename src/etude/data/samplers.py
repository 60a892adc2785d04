"""Orders other than a permutation. What a sampler draws depends on the seed and the epoch, as the loader sees to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from etude.errors import ConfigError


class Balanced:
    """As many samples of each class as of any other, drawn with replacement; ``size`` of them (None: as many as there
    are). The classes are the dataset's last tensor or its ``labels``.
    """

    def __init__(self, dataset: Any, size: int | None = None) -> None:
        labels = _labels(dataset)
        counts = torch.bincount(labels)
        self.weights = 1.0 / counts[labels].double()
        self.size = size or len(labels)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        yield from torch.multinomial(self.weights, self.size, replacement=True).tolist()


class Subset:
    """Some samples only: those at ``indices``, or the first ``size``; shuffled if asked."""

    def __init__(
        self, dataset: Any, indices: Sequence[int] | None = None, size: int | None = None, shuffle: bool = False
    ) -> None:
        if (indices is None) == (size is None):
            raise ConfigError("Subset needs either `indices` or `size`")
        self.indices = list(range(min(size or 0, len(dataset))) if indices is None else indices)
        self.shuffle = shuffle
        for index in self.indices:
            if not 0 <= index < len(dataset):
                raise ConfigError(f"Subset: index {index} is outside of the data, which has {len(dataset)} samples")

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        if not self.shuffle:
            yield from self.indices
            return
        for place in torch.randperm(len(self.indices)).tolist():
            yield self.indices[place]


def _labels(dataset: Any) -> Tensor:
    labels = getattr(dataset, "labels", None)
    if labels is None and getattr(dataset, "tensors", None):
        labels = dataset.tensors[-1]
    if labels is None and getattr(dataset, "samples", None):
        labels = [label for _, label in dataset.samples]
    if labels is None:
        raise ConfigError(f"Balanced: {type(dataset).__name__} does not say its labels", hint="give it `labels`")
    return torch.as_tensor(labels).long()
