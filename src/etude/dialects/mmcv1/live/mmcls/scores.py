"""Scores of a classification: confusion matrix, precision, recall, F1, support."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def calculate_confusion_matrix(pred: Any, target: Any) -> Tensor:
    """Counts by true class (rows) and predicted class (columns)."""
    scores, labels = torch.as_tensor(pred), torch.as_tensor(target).reshape(-1)
    classes = scores.size(1)
    where = labels * classes + scores.argmax(1)
    return torch.bincount(where, minlength=classes * classes).reshape(classes, classes)


def precision_recall_f1(pred: Any, target: Any, average_mode: str = "macro", thrs: Any = 0.0) -> tuple[Any, Any, Any]:
    """In percent; per class with ``average_mode='none'``, else the mean over classes."""
    scores, labels = torch.as_tensor(pred), torch.as_tensor(target).reshape(-1)
    thresholds = thrs if isinstance(thrs, tuple) else (thrs,)
    rows = [_scores_at(scores, labels, limit, average_mode) for limit in thresholds]
    if not isinstance(thrs, tuple):
        return rows[0]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _scores_at(scores: Tensor, labels: Tensor, limit: float | None, average_mode: str) -> tuple[Any, Any, Any]:
    best, guess = scores.float().max(1)
    classes = scores.size(1)
    if limit is not None:
        guess = torch.where(best > limit, guess, torch.full_like(guess, -1))
    hits = torch.bincount(labels[guess == labels], minlength=classes).float()
    said = torch.bincount(guess[guess >= 0], minlength=classes).float()
    true = torch.bincount(labels, minlength=classes).float()
    precision, recall = 100 * hits / said.clamp(min=1), 100 * hits / true.clamp(min=1)
    f1 = 2 * precision * recall / (precision + recall).clamp(min=torch.finfo(torch.float32).eps)
    if average_mode == "none":
        return precision.numpy(), recall.numpy(), f1.numpy()
    return float(precision.mean()), float(recall.mean()), float(f1.mean())


def precision(pred: Any, target: Any, average_mode: str = "macro", thrs: Any = 0.0) -> Any:
    return precision_recall_f1(pred, target, average_mode, thrs)[0]


def recall(pred: Any, target: Any, average_mode: str = "macro", thrs: Any = 0.0) -> Any:
    return precision_recall_f1(pred, target, average_mode, thrs)[1]


def f1_score(pred: Any, target: Any, average_mode: str = "macro", thrs: Any = 0.0) -> Any:
    return precision_recall_f1(pred, target, average_mode, thrs)[2]


def support(pred: Any, target: Any, average_mode: str = "macro") -> Any:
    """How many samples each class has, or all together."""
    counts = calculate_confusion_matrix(pred, target).sum(1)
    return counts.numpy() if average_mode == "none" else int(counts.sum())
