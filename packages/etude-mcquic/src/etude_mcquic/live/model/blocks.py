"""Building blocks of the compressor, registered in ``ModuleRegistry``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from etude_mcquic.live.registry import ModuleRegistry, served_as

_MODULE = "mcquic.nn.blocks"


def conv(fan_in: int, fan_out: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, kernel, stride, kernel // 2)


class _Residual(nn.Module):
    """Computes ``body(x) + skip(x)``."""

    def __init__(self, body: nn.Module, skip: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.skip = body, skip or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.body(x) + self.skip(x)
        return total


@ModuleRegistry.register
@served_as(_MODULE)
class ResidualBlockWithStride(_Residual):
    """A residual block that halves the resolution."""

    def __init__(self, inChannels: int, outChannels: int, stride: int = 2) -> None:
        body = nn.Sequential(conv(inChannels, outChannels, 3, stride), nn.SiLU(), conv(outChannels, outChannels))
        super().__init__(body, conv(inChannels, outChannels, 1, stride))


@ModuleRegistry.register
@served_as(_MODULE)
class ResidualBlockShuffle(_Residual):
    """A residual block that doubles the resolution with pixel shuffle."""

    def __init__(self, inChannels: int, outChannels: int, upsample: int = 2) -> None:
        def up() -> nn.Module:
            return nn.Sequential(conv(inChannels, outChannels * upsample**2), nn.PixelShuffle(upsample))

        super().__init__(nn.Sequential(up(), nn.SiLU(), conv(outChannels, outChannels)), up())


@ModuleRegistry.register
@served_as(_MODULE)
class ResidualBlock(_Residual):
    """A residual block that keeps the resolution."""

    def __init__(self, inChannels: int, outChannels: int) -> None:
        body = nn.Sequential(nn.SiLU(), conv(inChannels, outChannels), nn.SiLU(), conv(outChannels, outChannels))
        super().__init__(body, None if inChannels == outChannels else conv(inChannels, outChannels, 1))


@ModuleRegistry.register
@served_as(_MODULE)
class ResidualBlockMasked(nn.Module):
    """A residual block with masked convolutions, which see only pixels above and to the left."""

    def __init__(self, inChannels: int, outChannels: int, maskType: str = "A") -> None:
        super().__init__()
        self.first, self.second = conv(inChannels, outChannels), conv(outChannels, outChannels)
        mask = torch.ones(3, 3)
        mask[1, 1 if maskType == "A" else 2 :] = 0
        mask[2:] = 0
        self.register_buffer("mask", mask)
        self.mask: Tensor
        self.skip = nn.Identity() if inChannels == outChannels else conv(inChannels, outChannels, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.silu(self._masked(self.first, x))
        total: Tensor = self._masked(self.second, hidden) + self.skip(x)
        return total

    def _masked(self, layer: nn.Conv2d, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, layer.weight * self.mask, layer.bias, padding=1)


@ModuleRegistry.register
@served_as(_MODULE)
class AttentionBlock(nn.Module):
    """Multiplies one branch by the sigmoid of another, and adds the input."""

    def __init__(self, channel: int) -> None:
        super().__init__()
        self.trunk = ResidualBlock(channel, channel)
        self.gate = nn.Sequential(ResidualBlock(channel, channel), conv(channel, channel, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.trunk(x) * self.gate(x) + x
        return total


@ModuleRegistry.register
@served_as(_MODULE)
class NonLocalBlock(nn.Module):
    """Self-attention over all positions."""

    def __init__(self, channel: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Conv2d(channel, channel, 1) for _ in range(3))
        self.out = nn.Conv2d(channel, channel, 1)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (layer(x).flatten(2).transpose(1, 2) for layer in (self.query, self.key, self.value))
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        total: Tensor = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return total
