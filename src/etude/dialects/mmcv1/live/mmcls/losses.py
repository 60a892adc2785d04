"""Cross entropy as mmclassification counts it: one value per sample, weighted, then the sum over ``avg_factor``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

REDUCTIONS = (None, "none", "mean", "sum")


def reduced(loss: Tensor, weight: Tensor | None, reduction: str, avg_factor: float | None) -> Tensor:
    """The losses of all samples as one. ``avg_factor`` takes the place of their number in a mean."""
    if weight is not None:
        loss = loss * weight
    if reduction == "none":
        return loss
    if avg_factor is None:
        return loss.mean() if reduction == "mean" else loss.sum()
    if reduction != "mean":
        raise ValueError('avg_factor can not be used with reduction="sum"')
    return loss.sum() / avg_factor


def cross_entropy(
    pred: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    avg_factor: float | None = None,
    class_weight: Tensor | None = None,
) -> Tensor:
    """Of scores and the numbers of the right classes."""
    loss = F.cross_entropy(pred, label, weight=class_weight, reduction="none")
    return reduced(loss, None if weight is None else weight.float(), reduction, avg_factor)


def soft_cross_entropy(
    pred: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    avg_factor: float | None = None,
    class_weight: Tensor | None = None,
) -> Tensor:
    """Of scores and a share for every class."""
    loss = -label * F.log_softmax(pred, dim=-1)
    loss = (loss if class_weight is None else loss * class_weight).sum(dim=-1)
    return reduced(loss, None if weight is None else weight.float(), reduction, avg_factor)


def binary_cross_entropy(
    pred: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    avg_factor: float | None = None,
    class_weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Of scores and a yes or no for every class; ``weight`` is one number a sample."""
    if pred.dim() != label.dim():
        raise AssertionError(f"labels have {label.dim()} dimensions, scores {pred.dim()}: a yes or no for every class")
    loss = F.binary_cross_entropy_with_logits(
        pred, label.float(), weight=class_weight, pos_weight=pos_weight, reduction="none"
    )
    if weight is not None:
        weight = weight.float().reshape(-1, 1) if pred.dim() > 1 else weight.float()
    return reduced(loss, weight, reduction, avg_factor)


class CrossEntropyLoss(nn.Module):
    """Cross entropy, or its binary (``use_sigmoid``) or soft (``use_soft``) form, times ``loss_weight``."""

    def __init__(
        self,
        use_sigmoid: bool = False,
        use_soft: bool = False,
        reduction: str = "mean",
        loss_weight: float = 1.0,
        class_weight: Sequence[float] | None = None,
        pos_weight: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if use_sigmoid and use_soft:
            raise AssertionError("use_sigmoid and use_soft could not be set simultaneously")
        self.use_sigmoid, self.use_soft = use_sigmoid, use_soft
        self.reduction, self.loss_weight = reduction, loss_weight
        self.class_weight, self.pos_weight = class_weight, pos_weight
        self.cls_criterion: Callable[..., Tensor] = (
            binary_cross_entropy if use_sigmoid else soft_cross_entropy if use_soft else cross_entropy
        )

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if reduction_override not in REDUCTIONS:
            raise AssertionError(f"reduction_override must be one of {REDUCTIONS}, got {reduction_override!r}")
        if self.pos_weight is not None and self.use_sigmoid:
            kwargs["pos_weight"] = cls_score.new_tensor(self.pos_weight)
        return self.loss_weight * self.cls_criterion(
            cls_score,
            label,
            weight,
            reduction=reduction_override or self.reduction,
            avg_factor=avg_factor,
            class_weight=None if self.class_weight is None else cls_score.new_tensor(self.class_weight),
            **kwargs,
        )
