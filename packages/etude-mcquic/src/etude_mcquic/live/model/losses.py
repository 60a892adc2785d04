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
        return 1 - msSSIM(restored + 1, image + 1, dataRange=2.0).mean()


@LossRegistry.register
@served_as(_MODULE)
class PSNR(Distortion):
    """Computes the mean squared error, shown as a signal-to-noise ratio."""

    def __init__(self) -> None:
        super().__init__(Decibel(2.0))

    def distortion(self, restored: Tensor, image: Tensor) -> Tensor:
        return F.mse_loss(restored, image)


def msSSIM(x: Tensor, y: Tensor, *, dataRange: float = 1.0, window: int = 11, sigma: float = 1.5) -> Tensor:
    """Return the MS-SSIM of each image and channel as McQuic computes it, with weights whose sum is 1.0001.

    McQuic refuses images whose shorter side is 160 pixels or less. Here they have as many scales as fit, with weights
    whose sum is 1, a window that fits, and a gradient also where pictures are unlike.
    """
    kernel = _gaussian(window, sigma).to(x)
    weights = torch.tensor(SCALES, device=x.device, dtype=x.dtype)
    is_small = min(x.shape[-2:]) <= (window - 1) * 2 ** (len(SCALES) - 1)
    if is_small:
        scales = max(1, min(len(SCALES), 1 + int(torch.tensor(min(x.shape[-2:]) / window).log2().floor())))
        weights = weights[:scales] / weights[:scales].sum()
    parts = []
    for left in reversed(range(len(weights))):
        similarity, structure = _ssim(x, y, kernel, dataRange)
        part = structure if left else similarity
        parts.append(part.clamp(min=1e-6) if is_small else F.relu(part))
        odd = [side % 2 for side in x.shape[2:]]
        x, y = F.avg_pool2d(x, 2, padding=odd), F.avg_pool2d(y, 2, padding=odd)
    return (torch.stack(parts, 1) ** weights.view(1, -1, 1)).prod(1)


def _ssim(x: Tensor, y: Tensor, kernel: Tensor, dataRange: float) -> tuple[Tensor, Tensor]:
    # Gradients are summed in the order of these lines, which is McQuic's: the same bits need the same order.
    first, second = (0.01 * dataRange) ** 2, (0.03 * dataRange) ** 2
    mean_x, mean_y = _blur(x, kernel), _blur(y, kernel)
    squared_x, squared_y, product = mean_x.pow(2), mean_y.pow(2), mean_x * mean_y
    var_x, var_y = _blur(x * x, kernel) - squared_x, _blur(y * y, kernel) - squared_y
    covariance = _blur(x * y, kernel) - product
    structure = (2 * covariance + second) / (var_x + var_y + second)
    similarity = ((2 * product + first) / (squared_x + squared_y + first)) * structure
    return similarity.flatten(2).mean(-1), structure.flatten(2).mean(-1)


def _blur(x: Tensor, kernel: Tensor) -> Tensor:
    channels = x.shape[1]
    size = min(len(kernel), *x.shape[-2:])
    taps = kernel
    if size < len(kernel):
        taps = kernel[(len(kernel) - size) // 2 :][:size]
        taps = taps / taps.sum()
    x = F.conv2d(x, taps.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return F.conv2d(x, taps.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)


def _gaussian(size: int, sigma: float) -> Tensor:
    places = torch.arange(size, dtype=torch.float32) - size // 2
    taps = torch.exp(-(places**2) / (2 * sigma**2))
    return taps / taps.sum()
