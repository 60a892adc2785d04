"""RandAugment: a few random changes of an image, all of one strength."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from etude.errors import ConfigError


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
    """The image as seen through a 2 by 3 matrix; what comes in from outside is zero."""
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
    channels = [
        (torch.bincount(channel.flatten(), minlength=256).cumsum(0).float() / channel.numel())[channel]
        for channel in levels
    ]
    return torch.stack(channels)


def _posterize(image: Tensor, by: float) -> Tensor:
    steps: int = 2 ** (8 - round(4 * abs(by)))
    return (image * 255 / 256 * steps).floor() / max(1, steps - 1)


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
