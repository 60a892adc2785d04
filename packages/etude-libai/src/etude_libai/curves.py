"""LiBai's learning-rate schedules as pure functions of the base lr and the step.

The warm-up does not shift the main schedule, which runs from step 0. A linear warm-up rises to the value that the main
schedule has when the warm-up ends.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.schedules import curves as native
from etude.schedules.phases import python_names

Curve = Callable[[float, int], float]


def cosine(max_iter: int, alpha: float = 0.0) -> Curve:
    """Return half a cosine down to ``alpha`` times the base lr, then constant."""

    def curve(base: float, step: int) -> float:
        if step >= max_iter:
            return base * alpha
        return base * ((1 - alpha) * 0.5 * (1 + math.cos(math.pi * step / max_iter)) + alpha)

    return curve


def cosine_annealing(max_iter: int, eta_min: float = 0.0) -> Curve:
    """Return a cosine between the base lr and ``eta_min``; beyond ``max_iter`` it comes back up."""
    return lambda base, step: eta_min + (base - eta_min) * 0.5 * (1 + math.cos(math.pi * step / max_iter))


def step_decay(step_size: int, gamma: float = 0.1) -> Curve:
    return lambda base, step: float(base * gamma ** (step // step_size))


def multi_step(milestones: Sequence[int], gamma: float = 0.1) -> Curve:
    ordered = list(milestones)
    return lambda base, step: float(base * gamma ** bisect_right(ordered, step))


def exponential(gamma: float) -> Curve:
    return lambda base, step: float(base * gamma**step)


def polynomial(max_iter: int, end: float = 1e-4, power: float = 1.0, cycle: bool = False) -> Curve:
    """Return a polynomial decay from the base lr to ``end``. ``cycle`` starts a longer decay whenever one is over."""

    def curve(base: float, step: int) -> float:
        if cycle:
            at = max(step, 1)  # as in LiBai; a step of 0 would divide by zero
            span = max_iter * math.ceil(at / max_iter)
        else:
            span, at = max_iter, min(step, max_iter)
        return float((base - end) * (1 - at / span) ** power + end)

    return curve


def warmed(main: Curve, *, factor: float, length: int, method: str) -> Curve:
    """Return ``main`` with a warm-up of ``length`` steps: from ``factor`` times the base lr, or constant at it."""
    if length <= 0:
        return main

    def curve(base: float, step: int) -> float:
        if step >= length:
            return main(base, step)
        if method == "constant":
            return base * factor
        end = main(base, length) / base
        return base * (factor + (end - factor) * step / length)

    return curve


@dataclass(frozen=True)
class Running:
    """A native curve that runs from the first step of the run, even if another phase comes before it.

    To do without it, name the curve as `type`; it begins where the warm-up ends then.
    """

    curve: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self, window: native.Window) -> native.Factor:
        made = getattr(native, self.curve)(**python_names(self.arguments))
        length = None if window.length is None else window.begin + window.length
        whole = native.Window(0, length, window.steps_per_epoch)
        factor = made.prepare(whole) if hasattr(made, "prepare") else native.by_share(made, whole)
        return lambda step: factor(window.begin + step)

    def at_start(self) -> float:
        """Return the factor of the first step."""
        return self.prepare(native.Window(0, 1))(0)
