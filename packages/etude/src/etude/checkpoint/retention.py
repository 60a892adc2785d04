"""Decides which checkpoints to keep: the last k, the best k by a metric, every M-th for ever."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from etude.errors import ConfigError
from etude.fast_dataclass import record

MODES = ("min", "max")


class Kept(Protocol):
    """What the retention rule reads of a checkpoint."""

    @property
    def step(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


K = TypeVar("K", bound=Kept)


@record(kw_only=True)
class Retention:
    """``last`` None keeps all. ``best`` needs ``metric``; ``forever`` counts in steps.

    A metric that is missing or NaN is never best; of two equal values the older checkpoint stays best.
    """

    last: int | None = None
    best: int = 0
    metric: str = ""
    mode: str = "min"
    forever: int = 0

    def __post_init__(self) -> None:
        if self.last is not None and self.last < 1:
            raise ConfigError(f"keep: {self.last} would leave no checkpoint to resume from", hint="keep at least 1")
        if self.mode not in MODES:
            raise ConfigError(f"mode: {self.mode!r} is neither min nor max")
        if self.best and not self.metric:
            raise ConfigError("keeping the best checkpoints needs the name of a metric")

    def keep(self, candidates: Iterable[K]) -> list[K]:
        """Return those that stay, oldest first. The newest always stays."""
        ordered = sorted(candidates, key=lambda one: one.step)
        if self.last is None:
            return ordered
        chosen = set(map(id, ordered[-self.last :]))
        chosen |= set(map(id, self.ranked(ordered)[: self.best]))
        # 0 is a multiple of everything, and a save before the first step is none to keep for ever.
        chosen |= {id(one) for one in ordered if self.forever and one.step and one.step % self.forever == 0}
        return [one for one in ordered if id(one) in chosen]

    def keeps_all(self, count: int) -> bool:
        """Return whether so many checkpoints all stay, whatever they are."""
        return self.last is None or count <= self.last

    def ranked(self, candidates: Iterable[K]) -> list[K]:
        """Return those that have the metric, best first."""
        if not self.metric:
            return []
        scored = [one for one in candidates if is_score(one.metrics.get(self.metric))]
        sign = 1 if self.mode == "min" else -1
        return sorted(scored, key=lambda one: (sign * one.metrics[self.metric], one.step))


def is_score(value: float | None) -> bool:
    """Return whether ``value`` can be the best of anything; 0 can, NaN cannot."""
    return value is not None and not math.isnan(value)
