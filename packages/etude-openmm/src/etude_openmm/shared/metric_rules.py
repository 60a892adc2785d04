"""Guesses by the name of a metric whether greater or less is better, as mmcv 1.x and MMEngine do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from etude.errors.spelling import nearest

GREATER_KEYS = ("acc", "top", "AR@", "auc", "precision", "mAP", "mDice", "mIoU", "mAcc", "aAcc")
LESS_KEYS = ("loss",)

BETTER: dict[str, Callable[[float, float], bool]] = {
    "greater": lambda value, best: value > best,
    "less": lambda value, best: value < best,
}
WORST = {"greater": -inf, "less": inf}


def guess(metric: str, greater: Sequence[str] = GREATER_KEYS, less: Sequence[str] = LESS_KEYS) -> str | None:
    """Return ``greater``, ``less`` or None for a metric's name. An equal key comes before one that is contained."""
    name = metric.lower()
    up, down = [key.lower() for key in greater], [key.lower() for key in less]
    if name in up:
        return "greater"
    if name in down:
        return "less"
    if any(key in name for key in up):
        return "greater"
    if any(key in name for key in down):
        return "less"
    return None


def missing_result(word: str, wanted: str, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Return the message when a validation did not give what ``word`` asks for, and the hint."""
    near = nearest(wanted, [str(name) for name in metrics])
    hint = f"did you mean {near!r}?" if near else f"it gave {', '.join(map(str, metrics))}"
    return f"{word} is {wanted!r}, which the validation did not give", hint
