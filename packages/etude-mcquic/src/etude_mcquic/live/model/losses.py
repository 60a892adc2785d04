"""McQuic's losses (PSNR, MS-SSIM). A loss returns rate and distortion; images are in [-1, 1]."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from etude_mcquic.live.formats import Decibel
from etude_mcquic.live.registry import LossRegistry, served_as

_MODULE = "mcquic.loss"
#: Weights of the scales of MS-SSIM, from fine to coarse.
SCALES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


class Distortion(nn.Module):
    """The base of losses with a rate of 0. ``formatter`` converts the distortion for the log."""

    def __init__(self, formatter: nn.Module | None = None) -> None:
        super().__init__()
        self._formatter = formatter or Decibel(1.0)

    def formatDistortion(self, loss: Tensor) -> Tensor:
        shown: Tensor = self._formatter(loss)
        return shown

    def forward(self, restored: Tensor, image: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        return torch.zeros((), device=image.device), self.distortion(restored, image)

    def distortion(self, restored: Tensor, image: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how distortion is measured")


@LossRegistry.register
@served_as(_MODULE)
class MsSSIM(Distortion):
    """Computes one minus the multi-scale structural similarity."""

    def __init__(self) -> None:
        super().__init__(Decibel(1.0))

    def distortion(self, restored: Tensor, image: Tensor) -> Tensor:
        return 1 - msSSIM(restored + 1, image + 1, dataRange=2.0)


@LossRegistry.register
@served_as(_MODULE)
class PSNR(Distortion):
    """Computes the mean squared error, shown as a signal-to-noise ratio."""

    def __init__(self) -> None:
        super().__init__(Decibel(2.0))

    def distortion(self, restored: Tensor, image: Tensor) -> Tensor:
        return F.mse_loss(restored, image)


def msSSIM(x: Tensor, y: Tensor, *, dataRange: float = 1.0, window: int = 11, sigma: float = 1.5) -> Tensor:
    """Return the mean MS-SSIM over images and channels. Small images use as many scales as fit."""
    kernel = _gaussian(window, sigma).to(x)
    scales = max(1, min(len(SCALES), 1 + int(torch.tensor(min(x.shape[-2:]) / window).log2().floor())))
    weights = torch.tensor(SCALES[:scales], device=x.device, dtype=x.dtype)
    weights = weights / weights.sum()
    parts = []
    for scale in range(scales):
        similarity, structure = _ssim(x, y, kernel, dataRange)
        parts.append(similarity if scale == scales - 1 else structure)
        x, y = F.avg_pool2d(x, 2), F.avg_pool2d(y, 2)
    # A negative similarity has no real power.
    stacked = torch.stack(parts).clamp(min=1e-6)
    return stacked.pow(weights.view(-1, 1, 1)).prod(0).mean()


def _ssim(x: Tensor, y: Tensor, kernel: Tensor, dataRange: float) -> tuple[Tensor, Tensor]:
    first, second = (0.01 * dataRange) ** 2, (0.03 * dataRange) ** 2
    mean_x, mean_y = _blur(x, kernel), _blur(y, kernel)
    var_x, var_y = _blur(x * x, kernel) - mean_x**2, _blur(y * y, kernel) - mean_y**2
    covariance = _blur(x * y, kernel) - mean_x * mean_y
    structure = (2 * covariance + second) / (var_x + var_y + second)
    light = (2 * mean_x * mean_y + first) / (mean_x**2 + mean_y**2 + first)
    return (light * structure).mean((2, 3)), structure.mean((2, 3))


def _blur(x: Tensor, kernel: Tensor) -> Tensor:
    channels = x.shape[1]
    size = min(len(kernel), *x.shape[-2:])
    taps = kernel[(len(kernel) - size) // 2 :][:size]
    taps = taps / taps.sum()
    x = F.conv2d(x, taps.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return F.conv2d(x, taps.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)


def _gaussian(size: int, sigma: float) -> Tensor:
    places = torch.arange(size, dtype=torch.float32) - size // 2
    taps = torch.exp(-(places**2) / (2 * sigma**2))
    return taps / taps.sum()
