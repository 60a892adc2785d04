"""The forward pass of a model whose sequences are cut over several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from etude.core.forward import Forward, Losses
from etude.dist.layout.context import _IGNORED, Context
from etude.dist.layout.shards import whole
from etude.errors import UserCodeError


class CutForward(Forward):
    """Computes this rank's part of every sequence. Losses are weighted, so that their mean over ranks is that of all
    positions; outputs and targets are those of the part."""

    def __init__(self, context: Context, losses: Mapping[str, Any], model: Any) -> None:
        super().__init__(model, losses)
        self.context = context

    def __call__(self, batch: Any) -> tuple[Losses, Any, Any]:
        inputs, target = self.split(batch)
        if not self.context.is_verified and torch.is_grad_enabled():
            self._verify(inputs, target)
        return self._parts(inputs, target)

    def call(self, inputs: Any) -> Any:
        """Return the output of whole sequences."""
        with self.context.parts(_length(inputs)):
            output = super().call(self.context.cut(inputs))
        return self.context.gathered(whole(output), 1)

    def _parts(self, inputs: Any, target: Any) -> tuple[Losses, Any, Any]:
        own, part = self.context.cut(inputs), self.context.cut(target)
        with self.context.parts(_length(inputs)):
            output = super().call(own)
        return {name: self._weighted(loss, output, part) for name, loss in self.losses.items()}, output, part

    def _weighted(self, loss: Any, output: Any, target: Any) -> Tensor:
        plain = getattr(loss, "loss", loss)
        ignored = getattr(plain, "ignore_index", _IGNORED)
        weight = self.context.weight(target, ignored)
        # A part without a label that counts has a mean of nothing, which is no number.
        made: Tensor = loss(output, target) if weight else output.sum() * 0.0
        return made if weight == 1.0 else made * weight

    def _verify(self, inputs: Any, target: Any) -> None:
        first = [_first(value) for value in (inputs, target)]

        def compute(whole: bool) -> Tensor:
            if not whole:
                losses, _, _ = self._parts(*first)
                return sum(losses.values()).clone()  # type: ignore[union-attr]
            with self.context.whole():
                output = Forward.call(self, first[0])
            return sum(loss(output, first[1]) for loss in self.losses.values())  # type: ignore[return-value]

        self.context.verify(compute)


def _first(value: Any) -> Any:
    """Return the first sample of a batch."""
    if isinstance(value, Mapping):
        return {key: _first(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_first(one) for one in value)
    return value[:1] if isinstance(value, Tensor) else value


def _length(inputs: Any) -> int:
    """Return the length of the sequences in a batch."""
    values = (
        inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, list | tuple) else [inputs]
    )
    for value in values:
        if isinstance(value, Tensor) and value.ndim > 1:
            return int(value.shape[1])
    raise UserCodeError("parallel.context: no input has positions, the second dimension of a tensor")
