"""detectron2's EventStorage, in which a scalar may have its own iteration and smoothing counts those, and writers."""

from __future__ import annotations

import logging
from typing import Any

import torch

from etude_libai.live.events import storage as events
from etude_libai.live.events import writers
from etude_libai.live.events.storage import get_event_storage, has_event_storage
from etude_libai.live.events.writers import Estimating, EventWriter, JSONWriter

__all__ = [
    "CommonMetricPrinter", "EventStorage", "EventWriter", "JSONWriter", "TensorboardXWriter", "get_event_storage",
    "has_event_storage",
]  # fmt: skip


class EventStorage(events.EventStorage):
    """LiBai's storage, with windows that count iterations instead of values."""

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """Count the values of ``name`` in the last ``window_size`` iterations that it has."""
        data = self.history(name).values()
        last = data[-1][1]
        return sum(1 for _, iteration in data if iteration > last - window_size)

    def _smoothed(self, name: str, window_size: int) -> float:
        return self._buffers[name].median(self.count_samples(name, window_size))


class TensorboardXWriter(writers.TensorboardXWriter):
    opens_at_once = False


class CommonMetricPrinter(Estimating):
    """Logs one line with medians over the last ``window_size`` iterations."""

    def __init__(self, max_iter: int | None = None, window_size: int = 20) -> None:
        self.logger = logging.getLogger("detectron2.utils.events")
        self._max_iter, self._window_size = max_iter, window_size

    def write(self) -> None:
        storage = get_event_storage()
        iteration = storage.iter
        if iteration == self._max_iter:
            return
        histories = storage.histories()
        lr = f"{histories['lr'].latest():.5g}" if "lr" in histories else "N/A"
        eta = self._get_eta(storage)
        memory = torch.cuda.max_memory_allocated() / 1024.0 / 1024.0 if torch.cuda.is_available() else None
        self.logger.info(
            f" {f'eta: {eta}  ' if eta else ''}iter: {iteration}  {self._medians(storage, 'loss')}"
            f"  {self._medians(storage, '[metric]')}  {self._times(storage)} lr: {lr}  "
            f"{f'max_mem: {memory:.0f}M' if memory is not None else ''}"
        )

    def _medians(self, storage: Any, word: str) -> str:
        return "  ".join(
            f"{name}: {history.median(storage.count_samples(name, self._window_size)):.4g}"
            for name, history in list(storage.histories().items())  # a copy, as another thread may record
            if word in name
        )

    def _times(self, storage: Any) -> str:
        shown, histories = "", storage.histories()
        for name in [name for name in ("time", "data_time") if name in histories]:
            history, window = histories[name], storage.count_samples(name, self._window_size)
            mean = history.global_avg() if name == "time" else history.avg(window)
            shown += f"{name}: {mean:.4f}  last_{name}: {history.latest():.4f}  "
        return shown
