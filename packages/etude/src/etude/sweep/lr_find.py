"""Finds a learning rate: one short run whose rate grows at every step, and the rate at which the loss falls fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from etude.build import build
from etude.core.hook import Hook
from etude.core.loop import fit
from etude.core.run import Run
from etude.errors import ConfigError, Diverged
from etude.fast_dataclass import record, replace
from etude.plan import Plan

#: Weight of the past in the smoothed loss.
_SMOOTHING = 0.9
#: The search ends when the smoothed loss is this many times the best.
_TOO_HIGH = 4.0


@record
class LrCurve:
    """The smoothed loss at each learning rate, and the rate to use."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float


def lr_find(plan: Plan, *, low: float = 1e-7, high: float = 1.0, steps: int = 100) -> LrCurve:
    """Train for ``steps`` steps with rates from ``low`` to ``high`` on a log scale. Nothing is written."""
    if not 0 < low < high:
        raise ConfigError(f"lr-find goes from a rate above zero to a larger one, not from {low:g} to {high:g}")
    quiet = replace(plan.train, epochs=None, steps=steps, nonfinite="stop", limit_batches=None)
    run = build(
        replace(plan, train=quiet, hooks=(), writers=(), schedules=(), loop=replace(plan.loop, name="steps", args={}))
    )
    search = _Search(low, high, steps)
    run.hooks.add(search)
    try:
        fit(run)
    except Diverged:
        search.diverged = True
    return LrCurve(tuple(search.rates), tuple(search.losses), steepest(search.rates, search.losses))


class _Search(Hook):
    """Sets the rate before each step and keeps the smoothed loss after it."""

    def __init__(self, low: float, high: float, steps: int) -> None:
        self.low, self.ratio, self.steps = low, high / low, max(1, steps - 1)
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.diverged = False
        self._mean = 0.0

    def before_step(self, run: Run) -> None:
        rate = self.low * self.ratio ** (run.step / self.steps)
        for optimizer in run.optimizers.values():
            most = max(float(group.setdefault("initial_lr", group["lr"])) for group in optimizer.param_groups)
            for group in optimizer.param_groups:  # groups keep their proportions
                group["lr"] = rate * (group["initial_lr"] / most if most else 1.0)
        self._rate = rate

    def after_step(self, run: Run) -> None:
        loss = float(run.outputs["loss"].detach())
        self._mean = _SMOOTHING * self._mean + (1 - _SMOOTHING) * loss
        # The mean begins at 0: divided by the weights so far, as the moments of Adam are.
        smooth = self._mean / (1 - _SMOOTHING ** (len(self.losses) + 1))
        self.rates.append(self._rate)
        self.losses.append(smooth)
        if smooth > _TOO_HIGH * min(self.losses):
            run.stop("the loss has risen")


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float:
    """Return the rate at which the loss falls fastest per factor of the rate, before it reaches its lowest value.

    >>> steepest([1e-3, 1e-2, 1e-1, 1.0], [2.0, 1.9, 0.5, 3.0])
    0.01
    """
    last = losses.index(min(losses)) if losses else 0
    if last == 0:
        raise ConfigError("the loss never fell", hint="begin with a smaller rate (--from), or take more steps")
    slopes = [(losses[i + 1] - losses[i]) / math.log(rates[i + 1] / rates[i]) for i in range(last)]
    return rates[slopes.index(min(slopes))]
