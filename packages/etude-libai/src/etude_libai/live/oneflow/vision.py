"""The parts of flowvision that LiBai uses: small ones in torch, image transforms and datasets from torchvision.

flowvision cannot be installed with today's setuptools, and ``import libai`` needs it for every model.
"""

from __future__ import annotations

import importlib
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from etude.errors import UserError

IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_INCEPTION_MEAN = IMAGENET_INCEPTION_STD = (0.5, 0.5, 0.5)
CIFAR100_TRAIN_MEAN = (0.5070751592371323, 0.48654887331495095, 0.4409178433670343)
CIFAR100_TRAIN_STD = (0.2673342858792401, 0.2564384629170883, 0.27615047132568404)


class InterpolationMode(Enum):
    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def str_to_interp_mode(mode_str: str) -> Any:
    modes = _torchvision("transforms", "InterpolationMode") or InterpolationMode
    return modes(mode_str)


def to_2tuple(value: Any) -> tuple[Any, Any]:
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


class SoftTargetCrossEntropy(nn.Module):
    """Cross entropy with soft targets, as Mixup makes them."""

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return torch.sum(-target * torch.log_softmax(x, dim=-1), dim=-1).mean()


class LabelSmoothingCrossEntropy(nn.Module):
    """Cross entropy with label smoothing."""

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        self.smoothing = smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(x, target, label_smoothing=self.smoothing)


class Mixup:
    """Mixes each image of a batch with the one at the other end: blended (mixup), or a box of it pasted (cutmix)."""

    def __init__(
        self,
        mixup_alpha: float = 1.0,
        cutmix_alpha: float = 0.0,
        cutmix_minmax: Any = None,
        prob: float = 1.0,
        switch_prob: float = 0.5,
        mode: str = "batch",
        correct_lam: bool = True,
        label_smoothing: float = 0.1,
        num_classes: int = 1000,
    ) -> None:
        if mode != "batch" or cutmix_minmax is not None:
            raise UserError("Mixup: only mode='batch' without cutmix_minmax is built in; flowvision has the rest")
        self.mixup_alpha, self.cutmix_alpha, self.prob, self.switch_prob = mixup_alpha, cutmix_alpha, prob, switch_prob
        self.label_smoothing, self.num_classes = label_smoothing, num_classes

    def __call__(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        share, cuts = self._draw()
        other = x.flip(0)
        if cuts:
            top, bottom, left, right = _box(x.shape[-2:], share)
            x = x.clone()
            x[..., top:bottom, left:right] = other[..., top:bottom, left:right]
            share = 1.0 - (bottom - top) * (right - left) / (x.shape[-2] * x.shape[-1])
        elif share < 1.0:
            x = x * share + other * (1.0 - share)
        labels = self._smoothed(target)
        return x, labels * share + labels.flip(0) * (1.0 - share)

    def _draw(self) -> tuple[float, bool]:
        """Draw the share that an image keeps, and whether a box is pasted."""
        if np.random.rand() >= self.prob:
            return 1.0, False
        cuts = self.cutmix_alpha > 0 and (self.mixup_alpha <= 0 or np.random.rand() < self.switch_prob)
        alpha = self.cutmix_alpha if cuts else self.mixup_alpha
        return float(np.random.beta(alpha, alpha)), cuts

    def _smoothed(self, target: Tensor) -> Tensor:
        rest = self.label_smoothing / self.num_classes
        full = torch.full((len(target), self.num_classes), rest, device=target.device)
        return full.scatter_(1, target.view(-1, 1), 1.0 - self.label_smoothing + rest)


def _box(size: Any, share: float) -> tuple[int, int, int, int]:
    height, width = (int(side) for side in size)
    ratio = float(np.sqrt(1.0 - share))
    tall, wide = int(height * ratio), int(width * ratio)
    y, x = np.random.randint(height), np.random.randint(width)
    edges = [*np.clip([y - tall // 2, y + tall // 2], 0, height), *np.clip([x - wide // 2, x + wide // 2], 0, width)]
    return tuple(int(edge) for edge in edges)  # type: ignore[return-value]


def __getattr__(name: str) -> Any:
    """Return torchvision's class of that name; without torchvision, one that raises an error when it is made."""
    if name.startswith("_"):
        raise AttributeError(name)
    for home in ("transforms", "datasets"):
        found = _torchvision(home, name)
        if found is not None:
            return found

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise UserError(f"flowvision's {name} works on images: pip install torchvision, or install flowvision")

    return type(name, (), {"__init__": refuse, "__doc__": f"``flowvision``'s {name}, which needs torchvision."})


def _torchvision(home: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"torchvision.{home}"), name, None)
    except ImportError:
        return None
