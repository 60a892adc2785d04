"""Decides whether a metric should rise or fall."""

from __future__ import annotations

import math

#: Parts of names for which less is more.
_LOWER = ("loss", "error", "mae", "mse", "perplexity", "nll", "distance", "fid")


def lower_is_better(name: str, mode: str = "") -> bool:
    """As ``mode`` says (``min`` or ``max``), or by the name: losses and errors should fall, the rest should rise."""
    if mode:
        return mode == "min"
    return any(word in name.lower() for word in _LOWER)


def is_scored(name: str) -> bool:
    """Return whether a best value of this name means anything; that of a learning rate or a norm does not.

    >>> is_scored("val/accuracy"), is_scored("train/lr"), is_scored("train/base_lr"), is_scored("train/grad_norm")
    (True, False, False, False)
    """
    return not any(part in ("lr", "base_lr", "momentum", "norm", "grad_norm") for part in name.split("/"))


def improves(value: float, best: float | None, *, lower: bool, by: float = 0.0) -> bool:
    """Return whether ``value`` beats ``best`` by more than ``by``. What is not finite never does."""
    if not math.isfinite(value):
        return False
    if best is None or math.isnan(best):
        return True
    return value < best - by if lower else value > best + by
