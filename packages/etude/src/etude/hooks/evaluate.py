"""Evaluate: measures the model on other data periodically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    The data of splits in ``also`` are measured before it. Their results are recorded under their own names; a hook
    that watches one calls it ``val_noisy/accuracy``.

    ``mode`` (``min`` or ``max``) says which way is better; without it, losses and errors should fall and the rest rise.
    """

    priority = 70

    def __init__(self, split: str = "val", mode: str = "", also: Sequence[str] = ()) -> None:
        self.split, self.mode, self.also = split, mode, tuple(also)
        #: Metric → the best value so far and the number of steps it was reached after.
        self.best: dict[str, tuple[float, int]] = {}

    def before_run(self, run: Run) -> None:
        for split in (self.split, *self.also):
            if split not in run.data:
                raise ConfigError(f"Evaluate: there is no data for {split!r}", hint=suggest(split, run.data))

    def act(self, run: Run) -> None:
        for split in (self.split, *self.also):
            rewind = getattr(run.data[split], "rewind", None)
            if rewind is not None:
                rewind()
        also = {split: run.data[split] for split in self.also}
        values = evaluate(run, run.data[self.split], run.evaluation, also)
        of = {name: next((split for split in also if name.startswith(f"{split}/")), self.split) for name in values}
        for split in (*also, self.split):
            own = {name.removeprefix(f"{split}/"): value for name, value in values.items() if of[name] == split}
            run.events.write(own, step=run.done, epoch=run.last_epoch, split=split)
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
