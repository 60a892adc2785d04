"""Self-supervised learning on the digits, with parts as in MMSelfSup: views, backbones, necks, heads, a linear probe.

The configs beside this file import it by ``custom_imports``; everything below is what a user writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel, BaseModule
from mmengine.registry import DATASETS, METRICS, MODELS
from torch import Tensor, nn
from torch.utils.data import Dataset

from etude.data.datasets.digits import Digits


@DATASETS.register_module()
class DigitViews(Dataset):
    """Pictures of 8 × 8 and, for training, ``views`` differently distorted copies of each, or only moved ones."""

    def __init__(self, split: str = "train", views: int = 0, noisy: bool = True) -> None:
        digits = Digits(split=split)
        self.pictures = torch.stack([torch.as_tensor(digits[i][0]).reshape(1, 8, 8) for i in range(len(digits))])
        self.labels = torch.tensor([int(digits[i][1]) for i in range(len(digits))])
        self.views, self.distort = views, distort if noisy else move

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        picture = self.pictures[index]
        inputs = [self.distort(picture) for _ in range(self.views)] if self.views else [picture]
        return {"inputs": inputs, "data_samples": self.labels[index]}


def distort(picture: Tensor) -> Tensor:
    """Moved by up to a pixel, with a stripe missing, fainter or stronger, and noisy."""
    down, right, gap = torch.randint(-1, 2, (3,)).tolist()
    moved = picture.roll((down, right), dims=(1, 2))
    moved[:, :, 3 + gap] *= 0.3
    return moved * (0.6 + 0.8 * torch.rand(())) + 0.15 * torch.randn(1, 8, 8)


def move(picture: Tensor) -> Tensor:
    """Moved by up to a pixel, a little fainter or stronger: nothing in it that cannot be guessed from the rest."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return picture.roll((down, right), dims=(1, 2)) * (0.8 + 0.4 * torch.rand(()))


@MODELS.register_module()
class SmallConvNet(BaseModule):
    """Two convolutions with batch norm, and the mean over the picture."""

    def __init__(self, width: int = 32, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)
        self.conv1, self.bn1 = nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x))).mean(dim=(2, 3))


@MODELS.register_module()
class Projection(BaseModule):
    """Features to the space that views are compared in."""

    def __init__(self, in_channels: int, out_channels: int = 32) -> None:
        super().__init__()
        self.fc0, self.bn0 = nn.Linear(in_channels, in_channels, bias=False), nn.BatchNorm1d(in_channels)
        self.fc1 = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc1(F.relu(self.bn0(self.fc0(x))))


@MODELS.register_module()
class Contrast(BaseModule):
    """Each view has to find its partner among all other views of the batch."""

    def __init__(self, temperature: float = 0.2) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, first: Tensor, second: Tensor) -> dict[str, Tensor]:
        z = F.normalize(torch.cat([first, second]), dim=1)
        similar = (z @ z.T / self.temperature).fill_diagonal_(-1e9)
        count = len(first)
        partner = torch.arange(2 * count).roll(count)
        return {"loss": F.cross_entropy(similar, partner)}


class SelfSupervised(BaseModel):
    """Builds backbone, neck and head from their configs. ``forward`` gives features, losses or predictions by mode."""

    def __init__(self, backbone: dict[str, Any], neck: Any = None, head: Any = None) -> None:
        super().__init__()
        self.backbone = MODELS.build(backbone)
        if neck is not None:
            self.neck = MODELS.build(neck)
        if head is not None:
            self.head = MODELS.build(head)

    def forward(self, inputs: Sequence[Tensor], data_samples: Any = None, mode: str = "tensor") -> Any:
        if mode == "tensor":
            return self.extract_feat(inputs, data_samples)
        return self.loss(inputs, data_samples) if mode == "loss" else self.predict(inputs, data_samples)


@MODELS.register_module()
class SimCLR(SelfSupervised):
    """Two views of each picture through backbone and neck into the contrastive head."""

    def extract_feat(self, inputs: Sequence[Tensor], data_samples: Any = None) -> Tensor:
        return self.backbone(inputs[0])

    def loss(self, inputs: Sequence[Tensor], data_samples: Any) -> dict[str, Tensor]:
        both = self.neck(self.backbone(torch.cat(list(inputs[:2]))))
        return self.head(*both.chunk(2))

    def predict(self, inputs: Sequence[Tensor], data_samples: Any, **kwargs: Any) -> list[dict[str, Tensor]]:
        return _predictions(self.extract_feat(inputs), data_samples)


@MODELS.register_module()
class TinyViT(BaseModule):
    """Sixteen patches of 2 × 2, a class token, positions, and a few attention layers."""

    def __init__(self, width: int = 48, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.patch_embed = nn.Linear(4, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 17, width))
        self.layers = nn.ModuleList([_Block(width, heads) for _ in range(depth)])
        self.ln = nn.LayerNorm(width)

    def forward(self, pictures: Tensor, keep: Tensor | None = None) -> Tensor:
        x = self.patch_embed(patches(pictures)) + self.pos_embed[:, 1:]
        if keep is not None:
            x = x.gather(1, keep[..., None].expand(-1, -1, x.shape[-1]))
        x = torch.cat([(self.cls_token + self.pos_embed[:, :1]).expand(len(x), -1, -1), x], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.ln(x)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.ffn(self.ln2(x))


def patches(pictures: Tensor) -> Tensor:
    """(n, 1, 8, 8) → (n, 16, 4)"""
    return F.unfold(pictures, 2, stride=2).transpose(1, 2)


@MODELS.register_module()
class MAE(SelfSupervised):
    """Sees some of the patches and paints the others. Its features are those of all patches, side by side."""

    def __init__(self, backbone: dict[str, Any], width: int = 48, mask_ratio: float = 0.6, **kwargs: Any) -> None:
        super().__init__(backbone=backbone, **kwargs)
        self.kept = 16 - math.floor(16 * mask_ratio)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width))
        self.decoder_pos_embed = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.decoder = _Block(width, 4)
        self.paint = nn.Linear(width, 4)

    def extract_feat(self, inputs: Sequence[Tensor], data_samples: Any = None) -> Tensor:
        return self.backbone(inputs[0])[:, 1:].flatten(1)

    def loss(self, inputs: Sequence[Tensor], data_samples: Any) -> dict[str, Tensor]:
        wanted = patches(inputs[0])
        order = torch.rand(wanted.shape[:2], device=wanted.device).argsort(dim=1)
        keep, hidden = order[:, : self.kept], order[:, self.kept :]
        seen = self.backbone(inputs[0], keep)[:, 1:]
        canvas = self.mask_token.expand(len(seen), 16, -1)
        canvas = canvas.scatter(1, keep[..., None].expand_as(seen), seen) + self.decoder_pos_embed
        painted = self.paint(self.decoder(canvas))
        error = (painted - wanted).pow(2).mean(dim=2)
        return {"loss": error.gather(1, hidden).mean()}

    def predict(self, inputs: Sequence[Tensor], data_samples: Any, **kwargs: Any) -> list[dict[str, Tensor]]:
        return _predictions(self.extract_feat(inputs), data_samples)


def _predictions(features: Tensor, labels: Tensor) -> list[dict[str, Tensor]]:
    return [{"feature": feature, "label": label} for feature, label in zip(features, labels, strict=True)]


@METRICS.register_module()
class LinearProbe(BaseMetric):
    """How well a linear classifier on frozen features does: fitted on the first half, judged on the second."""

    default_prefix = "probe"

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Tensor]]) -> None:
        self.results += [(sample["feature"].cpu(), int(sample["label"])) for sample in data_samples]

    def compute_metrics(self, results: list[tuple[Tensor, int]]) -> dict[str, float]:
        features = torch.stack([feature for feature, _ in results]).double()
        features = (features - features.mean(0)) / (features.std(0) + 1e-6)
        features = torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], dim=1)
        labels = torch.tensor([label for _, label in results])
        half = len(labels) // 2
        x, y = features[:half], F.one_hot(labels[:half], 10).double()
        weights = torch.linalg.solve(x.T @ x + 1.0 * torch.eye(x.shape[1], dtype=torch.float64), x.T @ y)
        return {"accuracy": ((features[half:] @ weights).argmax(1) == labels[half:]).double().mean().item()}
