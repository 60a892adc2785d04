"""A small compressor in the place of McQuic's: encoder, residual multi-codebook quantization, decoder.

Each level halves the resolution again, quantizes its features with ``m`` codebooks of ``k`` words side by side, and
passes the remainder to the next level. The decoder adds up all levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


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


class ResidualBlockWithStride(_Residual):
    """A residual block that halves the resolution."""

    def __init__(self, inChannels: int, outChannels: int, stride: int = 2) -> None:
        body = nn.Sequential(conv(inChannels, outChannels, 3, stride), nn.SiLU(), conv(outChannels, outChannels))
        super().__init__(body, conv(inChannels, outChannels, 1, stride))


class ResidualBlockShuffle(_Residual):
    """A residual block that doubles the resolution with pixel shuffle."""

    def __init__(self, inChannels: int, outChannels: int, upsample: int = 2) -> None:
        def up() -> nn.Module:
            return nn.Sequential(conv(inChannels, outChannels * upsample**2), nn.PixelShuffle(upsample))

        super().__init__(nn.Sequential(up(), nn.SiLU(), conv(outChannels, outChannels)), up())


class ResidualBlock(_Residual):
    """A residual block that keeps the resolution."""

    def __init__(self, inChannels: int, outChannels: int) -> None:
        body = nn.Sequential(nn.SiLU(), conv(inChannels, outChannels), nn.SiLU(), conv(outChannels, outChannels))
        super().__init__(body, None if inChannels == outChannels else conv(inChannels, outChannels, 1))


class AttentionBlock(nn.Module):
    """Multiplies one branch by the sigmoid of another, and adds the input."""

    def __init__(self, channel: int) -> None:
        super().__init__()
        self.trunk = ResidualBlock(channel, channel)
        self.gate = nn.Sequential(ResidualBlock(channel, channel), conv(channel, channel, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.trunk(x) * self.gate(x) + x
        return total


class Quantizer(nn.Module):
    """Quantizes with ``m`` codebooks of ``k`` words, each for a part of the channels; gradients pass through."""

    def __init__(self, channel: int, m: int, k: int, decay: float = 0.99) -> None:
        super().__init__()
        if channel % m:
            raise ValueError(f"Compressor: {channel} channels cannot be shared by m = {m} codebooks")
        self.m, self.k, self.decay = m, k, decay
        self.codebook = nn.Parameter(torch.randn(m, k, channel // m) / math.sqrt(channel // m))
        self.register_buffer("usage", torch.ones(m, k) / k)
        self.usage: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the quantized features, the codes (N×m×H×W), negative distances as logits, and the commitment loss."""
        n, c, h, w = x.shape
        vectors = x.reshape(n, self.m, c // self.m, h * w).permute(1, 0, 3, 2).reshape(self.m, -1, c // self.m)
        distance = torch.cdist(vectors, self.codebook).square()
        codes = distance.argmin(-1)
        words = torch.gather(self.codebook, 1, codes.unsqueeze(-1).expand(-1, -1, c // self.m))
        commitment = (words - vectors.detach()).square().mean() + 0.25 * (words.detach() - vectors).square().mean()
        if self.training:
            self._count(codes)
        passed = vectors + (words - vectors).detach()
        quantized = passed.view(self.m, n, h * w, -1).permute(1, 0, 3, 2).reshape(n, c, h, w)
        places = codes.view(self.m, n, h, w).transpose(0, 1)
        return quantized, places, -distance, commitment

    @torch.no_grad()
    def _count(self, codes: Tensor) -> None:
        share = torch.zeros_like(self.usage).scatter_add_(1, codes, torch.ones_like(codes, dtype=self.usage.dtype))
        self.usage.lerp_(share / codes.shape[1], 1 - self.decay)

    @torch.no_grad()
    def refresh(self) -> float:
        """Move rarely used words next to used ones, and return the share that moved."""
        idle = self.usage < 0.1 / self.k
        for book in range(self.m):
            count = int(idle[book].sum())
            if count:
                chosen = torch.multinomial(self.usage[book] + 1e-9, count, replacement=True)
                near = self.codebook[book][chosen]
                self.codebook[book][idle[book]] = near + 1e-2 * torch.randn_like(near)
        self.usage[idle] = 1 / self.k
        return float(idle.float().mean())


class Level(nn.Module):
    """One level: halves the resolution, quantizes, and restores the resolution in the decoder."""

    def __init__(self, channel: int, m: int, k: int) -> None:
        super().__init__()
        self.down = ResidualBlockWithStride(channel, channel)
        self.quantizer = Quantizer(channel, m, k)
        self.up = nn.Sequential(ResidualBlock(channel, channel), ResidualBlockShuffle(channel, channel))


class Compressor(nn.Module):
    """Replaces McQuic's model if McQuic is not installed. It is small enough to train on a CPU.

    It has ``channel`` features, ``m`` codebooks per level and ``k`` words: a number, or one per level (fine to coarse).
    """

    #: The size of training crops; McQuic's is 512.
    crop = 64

    def __init__(self, channel: int = 128, m: int = 2, k: int | Sequence[int] = (8192, 2048, 512)) -> None:
        super().__init__()
        self.k = (k,) if isinstance(k, int) else tuple(k)
        if not self.k or min(self.k) < 2:
            raise ValueError(f"Compressor: k is {k}; a codebook needs two words at least")
        self.m = m
        self.encoder = nn.Sequential(
            conv(3, channel, 5, 2), ResidualBlock(channel, channel), ResidualBlockWithStride(channel, channel)
        )
        self.levels = nn.ModuleList(Level(channel, m, words) for words in self.k)
        self._levels: list[Any] = list(self.levels)
        self.decoder = nn.Sequential(
            ResidualBlockShuffle(channel, channel),
            ResidualBlock(channel, channel),
            ResidualBlockShuffle(channel, channel),
        )
        self.toImage = conv(channel, 3)
        self.polish = nn.Sequential(conv(3, channel // 2), AttentionBlock(channel // 2), conv(channel // 2, 3))

    @property
    def stride(self) -> int:
        """Return the number that height and width of an image must be a multiple of."""
        return int(4 * 2 ** len(self.k))

    def forward(self, image: Tensor) -> dict[str, Any]:
        features = self.encoder(image)
        rest, kept, codes, logits, commitments = features, [], [], [], []
        for level in self._levels:
            rest = level.down(rest)
            quantized, places, distance, commitment = level.quantizer(rest)
            rest = rest - quantized
            kept.append(quantized)
            codes.append(places)
            logits.append(distance)
            commitments.append(commitment)
        restored = self._restore(kept)
        commitment = torch.stack(commitments).mean()
        return {
            "restored": restored + self.polish(restored),
            "codes": codes,
            "logits": logits,
            "commitment": commitment,
        }

    def _restore(self, kept: Sequence[Tensor]) -> Tensor:
        """Decode from the coarsest level to the finest: each adds its quantized features to the result so far."""
        total = torch.zeros_like(kept[-1])
        for level, quantized in zip(reversed(self._levels), reversed(kept), strict=True):
            total = level.up(quantized + total)
        image: Tensor = self.toImage(self.decoder(total))
        return image

    def bits(self, codes: Sequence[Tensor]) -> float:
        """Return the size of the codes in bits, as the entropy of their histogram: what a good coder reaches."""
        total = 0.0
        for places, words in zip(codes, self.k, strict=True):
            for book in places.transpose(0, 1):
                share = torch.bincount(book.flatten(), minlength=words).double() / book.numel()
                share = share[share > 0]
                total += float(-(share * share.log2()).sum()) * book.numel()
        return total

    def refresh(self) -> float:
        shares = [float(level.quantizer.refresh()) for level in self._levels]
        return sum(shares) / len(shares)

    @property
    def CodeUsage(self) -> float:
        """Return the share of words that are used."""
        used = [(level.quantizer.usage > 0.1 / level.quantizer.k).float().mean() for level in self._levels]
        return float(torch.stack(used).mean())
