"""A stopwatch that can be paused."""

from __future__ import annotations

from time import perf_counter


class Timer:
    """Runs from its construction; ``seconds`` leaves pauses out."""

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
        """Since the start or the last reset, without pauses."""
        end = self._paused if self._paused is not None else perf_counter()
        return end - self._start - self._total_paused

    def avg_seconds(self) -> float:
        """Seconds per start-resume."""
        return self.seconds() / self._count_start
