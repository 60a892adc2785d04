"""Image transforms and a dataset that applies them. Any callable works in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from etude.errors import ConfigError


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


class RandAugment:
    """Apply ``count`` changes, drawn at random, to an image in [0, 1]; ``strength`` goes from 0 to 10.

    The changes are shifts, shears, a rotation, brightness, contrast, sharpness, inversion above a threshold, fewer
    grey levels and an equal histogram, each in a random direction.
    """

    def __init__(self, count: int = 2, strength: float = 9.0) -> None:
        if not 0 <= strength <= 10:
            raise ConfigError(f"RandAugment: strength is {strength}; it goes from 0 to 10")
        self.count, self.strength = count, strength

    def __call__(self, image: Tensor) -> Tensor:
        for number in torch.randint(len(_CHANGES), (self.count,)).tolist():
            sign = 1.0 if float(torch.rand(())) < 0.5 else -1.0
            image = _CHANGES[number](image, sign * self.strength / 10)
        return image


def _affine(image: Tensor, matrix: list[list[float]]) -> Tensor:
    """Transform an image by a 2 by 3 matrix; pixels from outside are zero."""
    grid = functional.affine_grid(torch.tensor([matrix]), [1, *image.shape], align_corners=False)
    return functional.grid_sample(image[None], grid, align_corners=False)[0]


def _rotate(image: Tensor, by: float) -> Tensor:
    angle = torch.tensor(by * torch.pi / 6)
    cos, sin = float(angle.cos()), float(angle.sin())
    return _affine(image, [[cos, -sin, 0.0], [sin, cos, 0.0]])


def _blend(one: Tensor, other: Tensor, share: float) -> Tensor:
    return (one + share * (one - other)).clamp(0, 1)


def _contrast(image: Tensor, by: float) -> Tensor:
    return _blend(image, image.mean().expand_as(image), 0.9 * by)


def _sharpness(image: Tensor, by: float) -> Tensor:
    blurred = functional.avg_pool2d(functional.pad(image[None], [1] * 4, mode="replicate"), 3, stride=1)[0]
    return _blend(image, blurred, 0.9 * by)


def _equalize(image: Tensor, by: float) -> Tensor:
    levels = (image * 255).round().clamp(0, 255).long()
    channels = [(torch.bincount(channel.flatten()).cumsum(0).float() / channel.numel())[channel] for channel in levels]
    return torch.stack(channels)


def _posterize(image: Tensor, by: float) -> Tensor:
    steps: int = 2 ** (8 - round(4 * abs(by)))
    return (image * 255 / 256 * steps).floor() / (steps - 1)


def _solarize(image: Tensor, by: float) -> Tensor:
    return torch.where(image >= 1 - abs(by), 1 - image, image)


_CHANGES: tuple[Callable[[Tensor, float], Tensor], ...] = (
    lambda image, by: _affine(image, [[1.0, 0.3 * by, 0.0], [0.0, 1.0, 0.0]]),
    lambda image, by: _affine(image, [[1.0, 0.0, 0.0], [0.3 * by, 1.0, 0.0]]),
    lambda image, by: _affine(image, [[1.0, 0.0, 0.6 * by], [0.0, 1.0, 0.0]]),
    lambda image, by: _affine(image, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.6 * by]]),
    _rotate, lambda image, by: (image * (1 + 0.9 * by)).clamp(0, 1), _contrast, _sharpness, _equalize, _posterize,
    _solarize, lambda image, by: image,
)  # fmt: skip
