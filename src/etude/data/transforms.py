"""A few changes of images and a dataset that applies them. Any callable will do in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class Transformed:
    """``dataset`` with ``transform`` applied to the first element of each sample (or to the sample, if it is no tuple).

    What the transform draws at random depends on the seed, the epoch and the sample, as for any dataset.
    """

    def __init__(self, dataset: Any, transform: Callable[[Any], Any]) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self.dataset[index]
        if isinstance(sample, tuple | list):
            return (self.transform(sample[0]), *sample[1:])
        return self.transform(sample)


class Chain:
    """One transform after another."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = tuple(transforms)

    def __call__(self, value: Any) -> Any:
        for transform in self.transforms:
            value = transform(value)
        return value


class Normalize:
    """Subtract the mean and divide by the standard deviation of each channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    def __call__(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std


class RandomFlip:
    """Mirror the image from left to right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, image: Tensor) -> Tensor:
        return image.flip(-1) if float(torch.rand(())) < self.p else image


class RandomShift:
    """Move the image by up to ``pixels`` in each direction; what comes in from the border is zero."""

    def __init__(self, pixels: int = 1) -> None:
        self.pixels = pixels

    def __call__(self, image: Tensor) -> Tensor:
        down, right = (int(torch.randint(2 * self.pixels + 1, ())) for _ in range(2))
        padded = functional.pad(image, [self.pixels] * 4)
        return padded[..., down : down + image.shape[-2], right : right + image.shape[-1]]
