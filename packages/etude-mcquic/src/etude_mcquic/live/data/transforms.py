"""McQuic's image transforms in plain torch, with the same random numbers and the same pixels as v0.1.40.

.. code-block:: text

    each image   bytes → RandomCrop(512) → [0, 1] → RandomGamma
    each batch   RandomPlanckianJitter → RandomHorizontalFlip → RandomVerticalFlip → [-1, 1]
    in the model PatchWiseErasing, until DisablePostProcessAfterEpoch switches it off
    validation   [0, 1] → AlignedCrop(128) → [-1, 1]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: The size of training crops.
CROP = 512
#: The number of colour temperatures that the jitter chooses from.
_LIGHTS = 48


class Compose:
    """Applies transforms in order."""

    def __init__(self, transforms: Sequence[Callable[[Tensor], Tensor]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Tensor) -> Tensor:
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomCrop(nn.Module):
    """Crops a square at random. An image that is too small gets a black border on both sides first."""

    def __init__(self, size: int, pad_if_needed: bool = True) -> None:
        super().__init__()
        self.size, self.pad_if_needed = size, pad_if_needed

    def forward(self, image: Tensor) -> Tensor:
        size = self.size
        if self.pad_if_needed:
            for side in (-1, -2):
                lacking = size - image.shape[side]
                if lacking > 0:
                    image = F.pad(image, (lacking, lacking) if side == -1 else (0, 0, lacking, lacking))
        height, width = image.shape[-2:]
        # As in torchvision, whose crop draws nothing then.
        if (height, width) == (size, size):
            return image
        top = int(torch.randint(0, height - size + 1, (1,)))
        left = int(torch.randint(0, width - size + 1, (1,)))
        return image[..., top : top + size, left : left + size]


class ToFloat(nn.Module):
    """Converts bytes to floats in [0, 1]."""

    def forward(self, image: Tensor) -> Tensor:
        return image.float() / 255 if image.dtype == torch.uint8 else image


class Normalize(nn.Module):
    """Scales values from [0, 1] to [-1, 1]."""

    def forward(self, image: Tensor) -> Tensor:
        return (image - 0.5) / 0.5


class RandomGamma(nn.Module):
    """Applies one of four tone curves: sRGB's, its inverse, a random power, none."""

    def forward(self, x: Tensor) -> Tensor:
        # As in McQuic, from Python's generator and not from torch's.
        return random.choice(_CURVES)(x)


def _to_srgb(x: Tensor) -> Tensor:
    return torch.where(x < 0.0031308, 12.92 * x, 1.055 * x.abs().pow(1 / 2.4) - 0.055)


def _from_srgb(x: Tensor) -> Tensor:
    return torch.where(x < 0.04045, x / 12.92, ((x + 0.055).abs() / 1.055).pow(2.4))


def _power(x: Tensor) -> Tensor:
    exponent = torch.rand((), device=x.device) * 1.95 + 0.05
    return x.clamp(0).pow(exponent).clamp(0.0, 1.0)


def _unchanged(x: Tensor) -> Tensor:
    return x


_CURVES = (_to_srgb, _from_srgb, _power, _unchanged)


class RandomPlanckianJitter(nn.Module):
    """Draws a colour temperature for each image of a batch, and clamps the batch.

    v0.1.40 changes the colours of a copy (indexing with a mask copies) and goes on with the batch itself, so its models
    never see the jitter. Training here sees the same images. The numbers are drawn so that later draws are the same.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.rand(x.shape[0]) < self.p
        torch.randint(_LIGHTS, (int(chosen.sum()),))
        return x.clamp(0.0, 1.0)


class _Flip(nn.Module):
    """Draws whether to flip each image, without an effect. v0.1.40 flips a copy and drops it, as its jitter does."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        torch.rand(x.shape[0])
        return x

    def extra_repr(self) -> str:
        return f"p={self.p}"


class RandomHorizontalFlip(_Flip):
    pass


class RandomVerticalFlip(_Flip):
    pass


class PatchWiseErasing(nn.Module):
    """Blackens a share ``p`` of the cells of a grid, the same cells in all images of a batch."""

    permutePattern: Tensor

    def __init__(self, grids: tuple[int, int] = (16, 16), p: float = 0.75) -> None:
        super().__init__()
        self.p, self.grids = p, (1, 1, *grids)
        pattern = torch.ones(grids).flatten()
        pattern[: round(pattern.numel() * p)] = 0
        self.register_buffer("permutePattern", pattern)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.randperm(len(self.permutePattern), device=x.device)
        self.permutePattern.copy_(self.permutePattern[order])
        return x * F.interpolate(self.permutePattern.reshape(self.grids), x.shape[-2:])


class AlignedCrop(nn.Module):
    """Crops height and width to a multiple of ``base`` from the centre. A side shorter than ``base`` stays."""

    def __init__(self, base: int = 128) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        for side in (-2, -1):
            length = x.shape[side]
            surplus = length % self.base if length >= self.base else 0
            x = x.narrow(side, surplus // 2, length - surplus)
        return x


class AlignedPadding(nn.Module):
    """Pads height and width to a multiple of ``base`` by reflecting the border."""

    def __init__(self, base: int = 128) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        height, width = (-x.shape[side] % self.base for side in (-2, -1))
        amounts = (width // 2, width - width // 2, height // 2, height - height // 2)
        return F.pad(x, amounts, "reflect")


class DeTransform(nn.Module):
    """Converts values in [-1, 1] to bytes."""

    def __init__(self, minValue: float = -1.0, maxValue: float = 1.0) -> None:
        super().__init__()
        self.least, self.most = float(minValue), float(maxValue)

    def forward(self, x: Tensor) -> Tensor:
        share = (x - self.least) / (self.most - self.least)
        # Each byte stands for an equal share of the range; the top value would be 256.
        return (share * (256.0 - 1e-3)).clamp(0.0, 255.0).byte()


def getTrainingPreprocess(crop: int = CROP) -> Compose:
    """Return the transform of single images, which runs in the workers."""
    return Compose([RandomCrop(crop), ToFloat(), RandomGamma()])


def getTrainingTransform() -> nn.Sequential:
    """Return the transform of batches, which runs on their device."""
    return nn.Sequential(RandomPlanckianJitter(p=1.0), RandomHorizontalFlip(), RandomVerticalFlip(), Normalize())


def getTraingingPostprocess() -> PatchWiseErasing:
    """Return the transform that the model applies to its input in training. (The original has this spelling.)"""
    return PatchWiseErasing()


def getEvalTransform() -> Compose:
    return Compose([ToFloat(), AlignedCrop(128), Normalize()])
