"""detectron2's storage: a scalar may say which iteration it belongs to, and smoothing counts iterations, not values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from etude.dialects.libai.live.events import storage as events
from etude.dialects.libai.live.events.history import HistoryBuffer
from etude.dialects.libai.live.events.storage import get_event_storage, has_event_storage

__all__ = ["EventStorage", "get_event_storage", "has_event_storage"]


class EventStorage(events.EventStorage):
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def put_scalar(self, name: str, value: Any, smoothing_hint: bool = True, cur_iter: int | None = None) -> None:
        self._put(name, value, smoothing_hint, self._iter if cur_iter is None else cur_iter)

    def put_scalars(self, *, smoothing_hint: bool = True, cur_iter: int | None = None, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            self.put_scalar(name, value, smoothing_hint=smoothing_hint, cur_iter=cur_iter)

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """How many values of ``name`` belong to the last ``window_size`` iterations that it has."""
        data = self.history(name).values()
        last = data[-1][1]
        return sum(1 for _, iteration in data if iteration > last - window_size)

    def _smoothed(self, name: str, window_size: int) -> float:
        return self._buffers[name].median(self.count_samples(name, window_size))

    def histories(self) -> Mapping[str, HistoryBuffer]:
        return super().histories()
