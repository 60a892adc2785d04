"""Losses beyond torch's own, which are known by their names."""

from etude.losses.combine import SumLoss

__all__ = ["SumLoss"]
