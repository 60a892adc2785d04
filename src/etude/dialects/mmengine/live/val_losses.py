"""Losses that a model hands out beside its predictions while it is validated."""

from __future__ import annotations

from typing import Any

import torch

from etude.dialects.mmengine.live.logging.history_buffer import HistoryBuffer
from etude.dialects.mmengine.live.structures import BaseDataElement


class ValLosses:
    """A last output that is a data element with ``loss`` alone in it is taken off and averaged over the pass."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.histories: dict[str, HistoryBuffer] = {}

    def __bool__(self) -> bool:
        return bool(self.histories)

    def take(self, outputs: Any) -> Any:
        """The predictions without the trailing losses; those are remembered."""
        last: Any = outputs[-1] if isinstance(outputs, list | tuple) and outputs else None
        if not isinstance(last, BaseDataElement) or list(last.keys()) != ["loss"]:
            return outputs
        for name, value in dict(last.get("loss")).items():
            history = self.histories.setdefault(name, HistoryBuffer())
            for scalar in _scalars(name, value):
                history.append(scalar)
        return outputs[:-1]

    def means(self) -> dict[str, float]:
        """Each loss under its own name, and the sum of those called loss as ``val_loss`` or ``test_loss``."""
        means = {name: history.mean() for name, history in self.histories.items()}
        total = sum(value for name, value in means.items() if "loss" in name)
        return {**means, f"{self.stage}_loss": total}


def _scalars(name: str, value: Any) -> list[torch.Tensor]:
    """What is averaged: of a list each of its losses, while training takes their sum."""
    if isinstance(value, torch.Tensor):
        return [value.detach().mean()]
    if isinstance(value, list | tuple):
        return [item.detach().mean() for item in value]
    raise TypeError(f"{name} is not a tensor or a list of tensors")
