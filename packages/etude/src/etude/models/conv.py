"""A small network of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from etude.models.activation import activation_of


class ConvNet(nn.Module):
    """A block of convolution, norm and activation per entry of ``channels``, each halving the image; mean; linear."""

    def __init__(
        self,
        classes: int = 10,
        channels: Sequence[int] = (32, 64),
        in_channels: int = 1,
        dropout: float = 0.0,
        activation: str = "ReLU",
    ) -> None:
        super().__init__()
        between = activation_of(activation)
        widths = [in_channels, *channels]
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, following, 3, padding=1, bias=False),
                nn.BatchNorm2d(following),
                between(),
                nn.MaxPool2d(2, ceil_mode=True),
            )
            for width, following in pairwise(widths)
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        for block in self.blocks:
            images = block(images)
        scores: Tensor = self.head(self.dropout(images.mean((-2, -1))))
        return scores
