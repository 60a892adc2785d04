"""Samplers: orders other than a permutation. What they draw depends on the seed and the epoch."""

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


class Weighted:
    """Draws ``size`` samples with replacement, each with a probability proportional to its weight.

    ``weights`` are a number per sample, or a number per class.
    """

    def __init__(self, dataset: Any, weights: Sequence[float], size: int | None = None) -> None:
        given = torch.tensor(weights, dtype=torch.float64)
        if len(given) != len(dataset):
            labels = _labels(dataset)
            if len(given) <= int(labels.max()):
                text = f"Weighted: {len(given)} weights are neither one per sample ({len(dataset)}) nor one per class"
                raise ConfigError(text)
            given = given[labels]
        if bool((given < 0).any()) or not bool(given.sum() > 0):
            raise ConfigError("Weighted: weights must not be negative, and one must be more than zero")
        self.weights, self.size = given, size or len(dataset)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        yield from torch.multinomial(self.weights, self.size, replacement=True).tolist()


class Mixture:
    """Samples of several datasets, joined by ``Concat``, in the shares of ``weights``.

    An epoch has ``size`` samples (None: as many as there are), of each dataset as many as its weight says. A dataset
    that has fewer comes again, each time in another order; one that has more gives others in the next epoch.
    """

    def __init__(self, dataset: Any, weights: Sequence[float], size: int | None = None) -> None:
        self.lengths: list[int] = list(getattr(dataset, "lengths", ()))
        if len(weights) != len(self.lengths):
            count = f"{len(self.lengths)} datasets" if self.lengths else "no Concat of datasets"
            raise ConfigError(f"Mixture: {len(weights)} weights for {count}", hint="write dataset: {type: Concat, …}")
        if min(weights) < 0 or sum(weights) <= 0:
            raise ConfigError("Mixture: weights must not be negative, and one must be more than zero")
        if size is not None and size < 1:
            raise ConfigError(f"Mixture: size is {size}; it must be at least 1")
        self.size = size or sum(self.lengths)
        # Rounded so that the counts add up to the size.
        ends = [round(self.size * sum(weights[: number + 1]) / sum(weights)) for number in range(len(weights))]
        self.counts = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        chosen, begin = [], 0
        for length, count in zip(self.lengths, self.counts, strict=True):
            rounds = -(-count // length)
            order = torch.cat([torch.randperm(length) for _ in range(rounds)]) if rounds else torch.empty(0).long()
            chosen.append(begin + order[:count])
            begin += length
        joined = torch.cat(chosen)
        yield from joined[torch.randperm(self.size)].tolist()


class LengthGrouped:
    """A random order in which samples of about the same length come together, so that batches need little padding.

    Samples are shuffled, cut into groups of ``group`` samples, and each group is sorted by length. The length of a
    sample is that of its ``key``, of its first part, or its own.
    """

    def __init__(self, dataset: Any, group: int = 512, key: str | int | None = None) -> None:
        if group < 1:
            raise ConfigError(f"LengthGrouped: group is {group}; it must be at least 1")
        self.group = group
        self.lengths = [_length(dataset[index], key) for index in range(len(dataset))]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(len(self.lengths)).tolist()
        for start in range(0, len(order), self.group):
            yield from sorted(order[start : start + self.group], key=lambda index: -self.lengths[index])


class Again(int):
    """The index of a sample that comes for the ``count``-th time in its epoch: what it draws depends on that too."""

    count: int

    def __new__(cls, index: int, count: int) -> Again:
        made = super().__new__(cls, index)
        made.count = count
        return made

    # For the way to a worker: pickle would call `__new__` with the int alone.
    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self), self.count


class RepeatedAugmentation:
    """A random order with every sample ``repeats`` times in a row, each time augmented anew; an epoch is as long as the
    data, so that it holds a part of the samples only.
    """

    def __init__(self, dataset: Any, repeats: int = 3) -> None:
        if repeats < 1:
            raise ConfigError(f"RepeatedAugmentation: repeats is {repeats}; it must be at least 1")
        self.size, self.repeats = len(dataset), repeats

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.size).tolist()
        for place in range(self.size):
            yield Again(order[place // self.repeats], place % self.repeats)


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


def _length(sample: Any, key: str | int | None) -> int:
    if key is None and isinstance(sample, tuple | list):
        return len(sample[0])
    if key is None and isinstance(sample, dict):
        return max((len(value) for value in sample.values() if hasattr(value, "__len__")), default=0)
    return len(sample if key is None else sample[key])


def _labels(dataset: Any) -> Tensor:
    labels = getattr(dataset, "labels", None)
    if labels is None and getattr(dataset, "tensors", None):
        labels = dataset.tensors[-1]
    if labels is None and getattr(dataset, "samples", None):
        labels = [label for _, label in dataset.samples]
    if labels is None:
        raise ConfigError(f"{type(dataset).__name__} does not provide its labels", hint="give it `labels`")
    return torch.as_tensor(labels).long()
