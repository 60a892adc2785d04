"""A module around a project's model that takes pictures as they are read and gives tensors, to be traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Program(nn.Module):
    """Normalises pictures (N×3×H×W, 0 to 255, in the order that the pipeline reads them), and calls ``answer``."""

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self, model: nn.Module, answer: Callable[[Tensor], Any], mean: Any, std: Any, *, flip: bool = False
    ) -> None:
        super().__init__()
        self.model, self._answer, self._flip = model, answer, flip
        for name, value in (("mean", mean), ("std", std)):
            shaped = None if value is None else torch.as_tensor(value, dtype=torch.float32).reshape(1, -1, 1, 1)
            self.register_buffer(name, shaped)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensors_in(self._answer(self.prepared(images))))

    def prepared(self, images: Tensor) -> Tensor:
        """Return what the model gets."""
        images = images.flip(1) if self._flip else images
        return images if self.mean is None or self.std is None else (images - self.mean) / self.std

    def raw(self, prepared: Tensor) -> Tensor:
        """Return the pictures of which :meth:`prepared` makes ``prepared``."""
        images = prepared if self.mean is None or self.std is None else prepared * self.std + self.mean
        return images.flip(1) if self._flip else images


def tensors_in(value: Any) -> list[Tensor]:
    """Return all tensors of nested outputs, in order."""
    if isinstance(value, Tensor):
        return [value]
    items: Sequence[Any] = (
        list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    )
    return [one for item in items for one in tensors_in(item)]


def batch_of(image: Tensor, count: int = 4) -> Tensor:
    """Return a batch of ``count`` different pictures made of one."""
    return torch.stack([image.roll(index, -1) for index in range(count)]).contiguous()
