"""Curves: a value as a pure function of progress. They have no counter and import no torch.

A curve gives a *factor* of the base value (of an ``lr`` of 0.1, a factor of 0.5 makes 0.05). Most are a function of the
share of their phase that has passed, from 0 to 1. Those that count in steps or epochs (``every: 10ep``) have a method
``prepare`` instead, which gets the phase once and returns a function of the step within it.

``from`` is a word of Python's own: in a config it is ``from``, in Python ``from_``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.units import Amount, parse

#: A factor by the step within a phase.
Factor = Callable[[float], float]


@dataclass(frozen=True)
class Window:
    """A phase in steps: its start in the run, its length (None: unknown), and the length of an epoch."""

    begin: int = 0
    length: int | None = None
    steps_per_epoch: int | None = None

    def steps(self, amount: str | float | Amount, *, default: str = "step") -> int:
        return parse(amount, default=default).steps(self.steps_per_epoch)


@dataclass(frozen=True)
class Constant:
    """``factor`` for the whole phase. As a first phase: constant warm-up."""

    factor: float = 1.0

    def __call__(self, at: float) -> float:
        return self.factor


@dataclass(frozen=True)
class Linear:
    """A straight line between two factors. As a first phase: linear warm-up."""

    from_: float = 0.0
    to: float = 1.0

    def __call__(self, at: float) -> float:
        return self.from_ + (self.to - self.from_) * at


@dataclass(frozen=True)
class Exponential:
    """Multiplies by equal ratios in equal times: from ``from`` to ``to``, or by ``gamma`` per ``every``.

    As a first phase (``from: 0.01, to: 1``): the exponential kind of warmup.
    """

    from_: float = 1.0
    to: float | None = None
    gamma: float | None = None
    every: str | int = "1ep"

    def __post_init__(self) -> None:
        if (self.to is None) == (self.gamma is None):
            raise ConfigError("Exponential needs either `to` or `gamma`")
        if self.from_ <= 0 or (self.to is not None and self.to <= 0):
            raise ConfigError("Exponential: `from` and `to` must be more than zero")

    def __call__(self, at: float) -> float:
        assert self.to is not None
        return float(self.from_ * (self.to / self.from_) ** at)

    def prepare(self, window: Window) -> Factor:
        if self.gamma is None:
            return by_share(self, window)
        every, gamma = window.steps(self.every), self.gamma
        return lambda step: self.from_ * gamma ** (step / every)


@dataclass(frozen=True)
class Step:
    """Multiplies by ``gamma`` after every ``every``."""

    every: str | int
    gamma: float = 0.1
    from_: float = 1.0

    def prepare(self, window: Window) -> Factor:
        every = window.steps(self.every)
        return lambda step: self.from_ * self.gamma ** (step // every)


@dataclass(frozen=True)
class MultiStep:
    """Multiplies by ``gamma`` at each of ``at``, counted from the beginning of the run: ``at: [30ep, 60ep]``."""

    at: Sequence[str | int]
    gamma: float = 0.1
    from_: float = 1.0

    def prepare(self, window: Window) -> Factor:
        moments = sorted(window.steps(moment) - window.begin for moment in self.at)
        return lambda step: self.from_ * self.gamma ** bisect_right(moments, step)


@dataclass(frozen=True)
class Poly:
    """From ``from`` to ``to`` along ``(1 - at) ** power``."""

    from_: float = 1.0
    to: float = 0.0
    power: float = 1.0

    def __call__(self, at: float) -> float:
        return float(self.to + (self.from_ - self.to) * (1.0 - at) ** self.power)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine wave from ``from`` to ``to``."""

    from_: float = 1.0
    to: float = 0.0

    def __call__(self, at: float) -> float:
        return cosine(self.from_, self.to, at)


@dataclass(frozen=True)
class CosineRestarts:
    """Cosines one after another. Each is ``grow`` times as long as the previous one and starts at ``shrink`` times
    it."""

    every: str | int
    grow: float = 1.0
    shrink: float = 1.0
    from_: float = 1.0
    to: float = 0.0

    def __post_init__(self) -> None:
        if self.grow < 1.0:
            raise ConfigError(f"CosineRestarts: grow is {self.grow}; it must be at least 1")

    def prepare(self, window: Window) -> Factor:
        every = window.steps(self.every)
        return lambda step: self._factor(step, every)

    def _factor(self, step: float, every: int) -> float:
        if self.grow == 1.0:
            turn, within, length = int(step // every), step % every, float(every)
        else:
            # Rounding must not leave the step of a restart in the turn before it.
            turn = int(math.log(step / every * (self.grow - 1.0) + 1.0, self.grow) + 1e-9)
            length = every * self.grow**turn
            within = max(0.0, step - every * (self.grow**turn - 1.0) / (self.grow - 1.0))
        return cosine(self.from_ * self.shrink**turn, self.to, min(within / length, 1.0))


@dataclass(frozen=True)
class Cyclic:
    """Rises from ``from`` to ``peak`` and falls again in every ``every``; ``rise`` is the share of the rise.

    The height of each turn is ``shrink`` times that of the one before.
    """

    every: str | int
    from_: float = 0.1
    peak: float = 1.0
    rise: float = 0.5
    shrink: float = 1.0
    shape: str = "linear"

    def __post_init__(self) -> None:
        require_share("Cyclic", rise=self.rise)
        shape_of(self.shape)

    def prepare(self, window: Window) -> Factor:
        every, between = window.steps(self.every), shape_of(self.shape)

        def factor(step: float) -> float:
            turn, at = int(step // every), (step % every) / every
            top = self.from_ + (self.peak - self.from_) * self.shrink**turn
            return _up_down(at, self.rise, self.from_, top, self.from_, between)

        return factor


@dataclass(frozen=True)
class OneCycle:
    """Rises from ``from`` to ``peak`` in the share ``rise`` of the phase, then falls to ``to``.

    For a momentum that falls while the lr rises: ``from: 1, peak: 0.89, to: 1``.
    """

    from_: float = 0.04
    peak: float = 1.0
    to: float = 4e-6
    rise: float = 0.3
    shape: str = "cosine"

    def __post_init__(self) -> None:
        require_share("OneCycle", rise=self.rise)
        shape_of(self.shape)

    def __call__(self, at: float) -> float:
        return _up_down(at, self.rise, self.from_, self.peak, self.to, shape_of(self.shape))


@dataclass(frozen=True)
class Inverse:
    """``(scale / (scale + t)) ** power`` where ``t`` is the time in this phase: 0.5 for 1/√t, 1 for 1/t.

    After a warmup of n steps, ``scale: n`` continues as the inverse root of the step.
    """

    scale: str | int
    power: float = 0.5
    from_: float = 1.0
    to: float = 0.0

    def prepare(self, window: Window) -> Factor:
        scale = window.steps(self.scale)
        return lambda step: self.to + (self.from_ - self.to) * (scale / (scale + step)) ** self.power


@dataclass(frozen=True)
class FlatCosine:
    """``from`` for the share ``flat`` of the phase, then a cosine to ``to``."""

    flat: float = 0.7
    from_: float = 1.0
    to: float = 0.0

    def __post_init__(self) -> None:
        require_share("FlatCosine", flat=self.flat)

    def __call__(self, at: float) -> float:
        return self.from_ if at <= self.flat else cosine(self.from_, self.to, (at - self.flat) / (1.0 - self.flat))


@dataclass(frozen=True)
class WarmupStableDecay:
    """Rises linearly from ``from`` to 1, stays, and falls to ``to`` at the end.

    ``warmup`` and ``decay`` are amounts (``500step``, ``1ep``), or shares of the phase (numbers below 1).
    """

    warmup: str | float = 0.05
    decay: str | float = 0.2
    from_: float = 0.0
    to: float = 0.0
    shape: str = "linear"

    def __post_init__(self) -> None:
        shape_of(self.shape)

    def prepare(self, window: Window) -> Factor:
        length = known_length(self, window)
        up, down = self._steps(self.warmup, window, length), self._steps(self.decay, window, length)
        if up + down > length:
            raise ConfigError(f"WarmupStableDecay: warmup {up} and decay {down} do not fit into {length} steps")
        between = shape_of(self.shape)

        def factor(step: float) -> float:
            if step < up:
                return self.from_ + (1.0 - self.from_) * step / up
            left = length - step
            return 1.0 if left >= down else between(1.0, self.to, min(1.0, 1.0 - left / down))

        return factor

    @staticmethod
    def _steps(amount: str | float, window: Window, length: int) -> int:
        if isinstance(amount, int | float) and 0 <= amount < 1:
            return round(amount * length)
        return window.steps(amount)


@dataclass
class Plateau:
    """Multiplies by ``gamma`` whenever ``metric`` has not improved for ``patience`` evaluations.

    It has a state and reacts to what happens, so a plan can only show it as 1. ``to`` is the lowest factor.
    """

    metric: str = "loss"
    mode: str = "min"
    gamma: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    cooldown: int = 0
    to: float = 0.0
    factor: float = field(default=1.0, init=False)
    best: float | None = field(default=None, init=False)
    waited: int = field(default=0, init=False)
    cooling: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.mode not in ("min", "max"):
            raise ConfigError(f"Plateau: no mode is called {self.mode!r}", hint=suggest(self.mode, ("min", "max")))

    def prepare(self, window: Window) -> Factor:
        return lambda step: self.factor

    def observe(self, value: float) -> None:
        """Receive the result of an evaluation."""
        if self._better(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.cooling > 0:
            self.cooling -= 1
            self.waited = 0
        if self.waited > self.patience:
            self.factor = max(self.factor * self.gamma, self.to)
            self.cooling, self.waited = self.cooldown, 0

    def _better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        margin = self.threshold * abs(self.best)
        return value < self.best - margin if self.mode == "min" else value > self.best + margin

    def state_dict(self) -> dict[str, Any]:
        return {"factor": self.factor, "best": self.best, "waited": self.waited, "cooling": self.cooling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.factor, self.best = state["factor"], state["best"]
        self.waited, self.cooling = state["waited"], state["cooling"]


# -- shared by the curves --------------------------------------------------------------------------------------------


def cosine(start: float, end: float, at: float) -> float:
    """Interpolate between two values by half a cosine wave."""
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * at))


def line(start: float, end: float, at: float) -> float:
    """Interpolate linearly between two values."""
    return start + (end - start) * at


def root(start: float, end: float, at: float) -> float:
    """Interpolate fast at first: ``1 - √at`` of the distance is left."""
    return start + (end - start) * math.sqrt(at)


_SHAPES: dict[str, Callable[[float, float, float], float]] = {"cosine": cosine, "linear": line, "sqrt": root}


def shape_of(name: str) -> Callable[[float, float, float], float]:
    """Return the interpolation that a config calls ``name``."""
    if name not in _SHAPES:
        raise ConfigError(f"no shape is called {name!r}", hint=suggest(name, _SHAPES))
    return _SHAPES[name]


def require_share(curve: str, **values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value < 1.0:
            raise ConfigError(f"{curve}: {name} is {value}; it must be between 0 and 1")


def known_length(curve: object, window: Window) -> int:
    """Return the length of the phase, for curves that need it."""
    if window.length is None:
        raise ConfigError(
            f"{type(curve).__name__} needs to know when it ends", hint="give `until`, or train for a number of steps"
        )
    return window.length


def by_share(curve: Callable[[float], float], window: Window) -> Factor:
    """Turn a curve over the share of its phase into a function of the step within it."""
    if isinstance(curve, Constant):
        return lambda step: curve.factor
    length = known_length(curve, window)
    return lambda step: curve(step / length if length else 1.0)


def _up_down(
    at: float, rise: float, start: float, top: float, end: float, between: Callable[[float, float, float], float]
) -> float:
    return between(start, top, at / rise) if at < rise else between(top, end, (at - rise) / (1.0 - rise))
