"""EmptyCache: give memory that torch keeps for later back to the accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from etude.core.hook import POINTS, Call, Hook
from etude.errors import ConfigError, suggest

if TYPE_CHECKING:
    from etude.core.run import Run


class EmptyCache(Hook):
    """Empties the cache of the accelerator's allocator at the given ``points``, if there is an accelerator."""

    def __init__(self, points: Sequence[str] = ("after_epoch",)) -> None:
        self.points = (points,) if isinstance(points, str) else tuple(points)
        for point in self.points:
            if point not in POINTS:
                raise ConfigError(f"EmptyCache: no point is called {point!r}", hint=suggest(point, POINTS))

    def calls(self) -> Mapping[str, Call]:
        return dict.fromkeys(self.points, self.empty)

    def empty(self, run: Run) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        elif torch.backends.mps.is_available():
            torch.mps.empty_cache()
