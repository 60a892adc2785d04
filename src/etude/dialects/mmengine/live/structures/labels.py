"""Labels of a whole sample, as numbers or one-hot."""

from __future__ import annotations

import torch

from etude.dialects.mmengine.live.structures.element import BaseDataElement


class LabelData(BaseDataElement):
    """Sample-level labels or scores."""

    @staticmethod
    def onehot_to_label(onehot: torch.Tensor) -> torch.Tensor:
        """The numbers of the ones."""
        assert isinstance(onehot, torch.Tensor)
        if onehot.ndim != 1 or onehot.max().item() > 1 or onehot.min().item() < 0:
            raise ValueError("input is not one-hot and can not convert to label")
        return onehot.nonzero().squeeze(-1)

    @staticmethod
    def label_to_onehot(label: torch.Tensor | list[int], num_classes: int) -> torch.Tensor:
        """Zeros of length ``num_classes`` with ones at the labels."""
        assert isinstance(label, torch.Tensor)
        onehot = label.new_zeros((num_classes,))
        assert label.numel() == 0 or max(label.tolist()) < num_classes, "a label is not below `num_classes`"
        onehot[label] = 1
        return onehot
