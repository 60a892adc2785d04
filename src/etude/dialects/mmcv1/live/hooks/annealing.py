"""Curves and warmup factors for learning rate and momentum, as plain functions of progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi
from typing import Any

from etude.dialects.mmcv1.live.checks import require

Anneal = Callable[[float, float, float], float]

WARMUPS = ("constant", "linear", "exp")


def annealing_cos(start: float, end: float, factor: float, weight: float = 1) -> float:
    """Return the value between ``start`` (factor 0) and ``end`` (factor 1) on half a cosine wave."""
    return end + 0.5 * weight * (start - end) * (cos(pi * factor) + 1)


def annealing_linear(start: float, end: float, factor: float) -> float:
    """Return the value between ``start`` (factor 0) and ``end`` (factor 1) on a line."""
    return start + (end - start) * factor


def anneal_function(strategy: str) -> Anneal:
    if strategy == "cos":
        return annealing_cos
    if strategy == "linear":
        return annealing_linear
    raise ValueError(f"anneal_strategy is 'cos' or 'linear', got {strategy!r}")


def warmup_factor(kind: str, at: float, ratio: float) -> float:
    """Return the factor of a learning rate, or divisor of a momentum. ``at`` is the progress of the warmup, 0 to 1."""
    if kind == "constant":
        return ratio
    if kind == "linear":
        return 1 - (1 - at) * (1 - ratio)
    return float(ratio ** (1 - at))


def check_warmup(warmup: str | None, warmup_iters: int, warmup_ratio: float) -> None:
    if warmup is None:
        return
    if warmup not in WARMUPS:
        raise ValueError(f"warmup is one of {', '.join(WARMUPS)}, got {warmup!r}")
    require(warmup_iters > 0, f"warmup_iters must be positive, got {warmup_iters}")
    require(0 < warmup_ratio <= 1.0, f"warmup_ratio must lie in (0, 1], got {warmup_ratio}")


def check_step(step: Any) -> None:
    """Check that ``step`` is a positive integer or a list of them."""
    if isinstance(step, list):
        require(
            all(isinstance(s, int) and s > 0 for s in step), f"step must list positive integers (1, 2, …), got {step}"
        )
    elif isinstance(step, int):
        require(step > 0, f"step must be positive, got {step}")
    else:
        raise TypeError(f"step must be an integer or a list of integers, got {step!r}")


def count_steps(step: int | Sequence[int], progress: int) -> int:
    """Return the number of decays until ``progress``. As in mmcv, a list is read up to the first milestone ahead."""
    if isinstance(step, int):
        return progress // step
    for passed, milestone in enumerate(step):
        if progress < milestone:
            return passed
    return len(step)


def check_one_of(first: Any, second: Any, name: str) -> None:
    """Check that exactly one of ``min_<name>`` and ``min_<name>_ratio`` is given: it is the target of the curve."""
    require((first is None) != (second is None), f"give exactly one of min_{name} and min_{name}_ratio")


class Cycle:
    """The cyclic policy: up and down ``times`` times in a run. ``gamma`` shrinks the peak of each cycle."""

    def __init__(
        self, target_ratio: Any, times: int, step_ratio_up: float, strategy: str, gamma: float, default_low: float
    ) -> None:
        self.ratio: tuple[float, float] = _target_ratio(target_ratio, default_low)
        require(0 <= step_ratio_up < 1.0, f"step_ratio_up must lie in [0, 1), got {step_ratio_up}")
        self.times, self.up, self.gamma, self.anneal = times, step_ratio_up, gamma, anneal_function(strategy)

    def value(self, base: float, iteration: int, max_iters: int) -> float:
        length = max_iters // self.times
        rising = int(self.up * length)
        inside, shrink = iteration % length, self.gamma ** (iteration // length)
        if rising == 0:
            return self.anneal(base * self.ratio[0], base * (1 - shrink + self.ratio[1] * shrink), inside / length)
        peak = base * (1 - shrink + self.ratio[0] * shrink)
        if inside < rising:
            return self.anneal(base, peak, inside / rising)
        return self.anneal(peak, base * self.ratio[1], (inside - rising) / (length - rising))


def _target_ratio(given: Any, low: float) -> tuple[float, float]:
    if isinstance(given, float):
        return given, given / low
    if isinstance(given, tuple):
        require(len(given) in (1, 2), f"target_ratio has one or two numbers, got {given}")
        return (given[0], given[0] / low) if len(given) == 1 else (given[0], given[1])
    raise ValueError(f"target_ratio must be a float or a tuple of two numbers, got {given!r}; write (10, 1e-4)")


class Phases:
    """The one-cycle policy: consecutive pieces ``(last iteration, from, to)``. Iterations may be fractions."""

    def __init__(self, pieces: Sequence[tuple[float, float, float]], *, endless: bool) -> None:
        self.pieces, self.endless = pieces, endless

    def locate(self, iteration: int) -> tuple[float, float, float]:
        """Return start and target of the piece that ``iteration`` is in, and the progress inside it, 0 to 1."""
        start = 0.0
        for number, (end, begin, target) in enumerate(self.pieces, 1):
            if iteration <= end or (self.endless and number == len(self.pieces)):
                return begin, target, (iteration - start) / (end - start)
            start = end
        raise ValueError(f"iteration {iteration} is after the end of the cycle, which has {start + 1:g} steps")
