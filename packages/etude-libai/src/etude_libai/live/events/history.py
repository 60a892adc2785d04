"""LiBai's HistoryBuffer (the values of one metric over time) and Timer."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch

#: The number of values of a metric in a checkpoint. No writer looks further back.
KEPT = 1000


class HistoryBuffer:
    """Holds the last values with their iterations, and the mean of all values ever added."""

    def __init__(self, max_length: int = 1_000_000) -> None:
        self._max_length = max_length
        self._data: list[tuple[float, float]] = []
        self._count = 0
        self._global_avg = 0.0

    def update(self, value: float, iteration: float | None = None) -> None:
        """Add a value. The default iteration is the number of values so far."""
        if iteration is None:
            iteration = self._count
        if len(self._data) == self._max_length:
            self._data.pop(0)
        self._data.append((value, iteration))
        self._count += 1
        self._global_avg += (value - self._global_avg) / self._count

    def latest(self) -> float:
        return self._data[-1][0]

    def median(self, window_size: int) -> float:
        """Return the median of the last ``window_size`` values; 0 means all."""
        return float(np.median([value for value, _ in self._data[-window_size:]]))

    def avg(self, window_size: int) -> float:
        """Return the mean of the last ``window_size`` values; 0 means all."""
        return float(np.mean([value for value, _ in self._data[-window_size:]]))

    def global_avg(self) -> float:
        """Return the mean of all values ever added."""
        return self._global_avg

    def state_dict(self) -> dict[str, Any]:
        """Return the newest values, and the mean of all."""
        kept = np.array(self._data[-KEPT:], dtype=np.float64).reshape(-1, 2)
        return {"data": torch.from_numpy(kept), "count": self._count, "mean": self._global_avg}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pairs = state["data"].tolist()
        self._data = [(value, int(at) if at.is_integer() else at) for value, at in pairs]
        self._count, self._global_avg = int(state["count"]), float(state["mean"])

    def values(self) -> list[tuple[float, float]]:
        """Return ``(value, iteration)`` pairs, oldest first."""
        return self._data


class Timer:
    """A timer that starts when it is made. ``seconds`` excludes pauses."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._start = perf_counter()
        self._paused: float | None = None
        self._total_paused = 0.0
        self._count_start = 1

    def pause(self) -> None:
        if self._paused is not None:
            raise ValueError("Trying to pause a Timer that is already paused!")
        self._paused = perf_counter()

    def is_paused(self) -> bool:
        return self._paused is not None

    def resume(self) -> None:
        if self._paused is None:
            raise ValueError("Trying to resume a Timer that is not paused!")
        self._total_paused += perf_counter() - self._paused
        self._paused = None
        self._count_start += 1

    def seconds(self) -> float:
        """Return the seconds since the start or the last reset, without pauses."""
        end = self._paused if self._paused is not None else perf_counter()
        return end - self._start - self._total_paused

    def avg_seconds(self) -> float:
        """Return the mean seconds between start or resume and pause."""
        return self.seconds() / self._count_start
