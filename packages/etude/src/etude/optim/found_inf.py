"""Detects losses that are not finite on the device (``found_inf``), without waiting for it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def takes_found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the kernel skips its update if a flag on the device is set, as for ``GradScaler``."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


class Unread:
    """Losses that only the device has checked.

    Fused optimizers leave parameters and moments unchanged while their ``found_inf`` is 1. With ``lasting``, it stays 1
    from the first bad loss until Python reads it, so that later steps change nothing either.
    """

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer], device: torch.device, *, lasting: bool) -> None:
        self._bad, self._row, self._longest = (torch.zeros((), device=device) for _ in range(3))
        self._lasting = lasting
        for optimizer in optimizers:
            optimizer.found_inf = self._bad  # type: ignore[attr-defined]

    @torch.no_grad()
    def look(self, loss: Tensor) -> None:
        """Check the loss on the device. Nothing is read, and no memory stays allocated."""
        bad = loss.detach().isfinite().logical_not_()
        if self._lasting:
            bad.logical_or_(self._bad)
        self._bad.copy_(bad)
        self._row.add_(1).mul_(self._bad)
        torch.maximum(self._longest, self._row, out=self._longest)

    def read(self) -> tuple[int, int]:
        """Return how many of the last losses in a row were bad, and the longest such row since the last reading."""
        row, longest = (int(value) for value in torch.stack([self._row, self._longest]).tolist())
        self._longest.copy_(self._row)
        return row, longest

    def set_row(self, row: int) -> None:
        """Restore the count from a checkpoint."""
        self._row.fill_(row)
        self._longest.fill_(row)
