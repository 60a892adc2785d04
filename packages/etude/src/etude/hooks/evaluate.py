"""Evaluate: measures the model on other data periodically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.core.hook import Periodic
from etude.core.loop import evaluate
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.metrics.direction import improves, lower_is_better

if TYPE_CHECKING:
    from etude.core.run import Run


class Evaluate(Periodic):
    """Measures on ``run.data[split]``, records the results under ``split``, and remembers the best of each.

    ``mode`` (``min`` or ``max``) says which way is better; without it, losses and errors should fall and the rest rise.
    """

    priority = 70

    def __init__(self, split: str = "val", mode: str = "") -> None:
        self.split, self.mode = split, mode
        #: Metric → the best value so far and the number of steps it was reached after.
        self.best: dict[str, tuple[float, int]] = {}

    def before_run(self, run: Run) -> None:
        if self.split not in run.data:
            raise ConfigError(f"Evaluate: there is no data for {self.split!r}", hint=suggest(self.split, run.data))

    def act(self, run: Run) -> None:
        loader = run.data[self.split]
        rewind = getattr(loader, "rewind", None)
        if rewind is not None:
            rewind()
        values = evaluate(run, loader, run.evaluation)
        run.events.write(values, step=run.done, epoch=run.last_epoch, split=self.split)
        for name, value in values.items():
            best = self.best[name][0] if name in self.best else None
            if improves(value, best, lower=lower_is_better(name, self.mode)):
                self.best[name] = (value, run.done)

    def summary(self) -> str:
        """Return ``best    accuracy 0.9833 (step 460)`` for the first metric that is not a loss."""
        name = next((name for name in self.best if "loss" not in name), next(iter(self.best), None))
        if name is None:
            return ""
        value, step = self.best[name]
        return f"best    {name} {value:.4f} (step {step})"

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "best": {name: list(pair) for name, pair in self.best.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.best = {name: (float(value), int(step)) for name, (value, step) in state["best"].items()}
