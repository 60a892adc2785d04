"""Formats step counts and sizes, converts to decibel, smooths values, and compares versions."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

VERSION = "0.1.40"


def prettyStep(step: int) -> str:
    """Return a step as five characters: ``  999``, ``1.23k``, `` 123M``; truncated, not rounded."""
    if step < 1000:
        return f"{step:5d}"
    thousands = min((len(str(step)) - 1) // 3, 5)
    digits = f"{step / 1000**thousands:.6f}"[:4].rstrip(".")
    return f"{digits:>4}{'kMGTP'[thousands - 1]}"


def totalParameters(model: nn.Module) -> str:
    """Return the number of parameters with four decimals: ``1.5000M``."""
    number = float(sum(parameter.numel() for parameter in model.parameters()))
    for unit in ("", "k", "M"):
        if number < 1000:
            return f"{number:.4f}{unit}"
        number /= 1000
    return f"{number:.4f}B"


class Decibel(nn.Module):
    """Computes ``-10 log10(x / upper²)``."""

    def __init__(self, upperBound: float) -> None:
        super().__init__()
        self.upper = upperBound

    def forward(self, x: Tensor) -> Tensor:
        return -10 * (x / self.upper**2).log10()


class EMATracker(nn.Module):
    """Computes an exponential moving average for the log; NaN before the first value."""

    def __init__(self, size: tuple[int, ...] | torch.Size = (), momentum: float = 0.9) -> None:
        super().__init__()
        self.decay = 1 - momentum
        self.register_buffer("shadow", torch.full(tuple(size), torch.nan))
        self.shadow: Tensor

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        moved = self.shadow - self.decay * (self.shadow - x)
        self.shadow.copy_(torch.where(torch.isnan(self.shadow).all(), x, moved))
        return self.shadow


def versionCheck(given: str) -> bool:
    """Return True for a file of this or an older version. Raises ``ValueError`` for a newer one."""
    theirs, ours = _numbers(given), _numbers(VERSION)
    if theirs > ours:
        raise ValueError(f"Version too new. Given {'.'.join(map(str, theirs))}, but I'm {VERSION} now.")
    return True


def _numbers(text: str) -> tuple[int, ...]:
    """Return a version as numbers, without trailing zeros: 0.2.0 is 0.2."""
    numbers = [int(part) for part in text.split(".")]
    while len(numbers) > 2 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def readableSize(byteSize: int, floating: int = 2, binary: bool = True) -> str:
    """Return a number of bytes with a unit: ``1.50kiB``, or with powers of 1000 ``1.54kB``."""
    size, base, middle = float(byteSize), 1024.0 if binary else 1000.0, "i" if binary else ""
    units = ["B", *(f"{letter}{middle}B" for letter in "kMGT")]
    for unit in units:
        if size < base:
            return f"{size:.{floating}f}{unit}"
        size /= base
    return f"{size:.{floating}f}P{middle}B"


def nop(*_: object, **__: object) -> None:
    """Do nothing."""


def hashOfFile(path: str, progress: object = None) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
