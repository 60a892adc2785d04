"""A small thing that scripts import along the way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ShapeSpec:
    """The shape of a feature map, as far as it is known."""

    channels: int | None = None
    height: int | None = None
    width: int | None = None
    stride: int | None = None
