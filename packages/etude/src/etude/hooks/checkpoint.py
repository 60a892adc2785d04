"""Checkpoint: saves the run periodically, and keeps the last and the best."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from etude.checkpoint.retention import Retention
from etude.core.hook import Periodic
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.metrics.direction import improves, lower_is_better
from etude.units import parse_written

if TYPE_CHECKING:
    from etude.core.run import Run


class Checkpoint(Periodic):
    """Saves periodically, and keeps the last ``keep`` and the ``best_k`` best by the metric ``best``.

    ``forever: 10ep`` also keeps one checkpoint every 10 epochs. ``save_last`` saves once more at the end.
    ``weights_only`` also saves the weights alone. ``failures`` saves in a row may fail before the run stops. With
    ``debug`` an exception in a step saves the state and the offending batch aside. ``folder`` keeps checkpoints
    elsewhere than in the run's own folder: a path, or a URL that fsspec knows (``s3://bucket/run``).
    """

    priority = 110

    def __init__(
        self,
        keep: int | None = 3,
        best: str = "",
        mode: str = "",
        best_k: int = 1,
        forever: str | int | None = None,
        save_last: bool = True,
        weights_only: bool = False,
        failures: int = 3,
        debug: bool = False,
        folder: str = "",
    ) -> None:
        self.keep, self.best, self.best_k = keep, best, best_k
        self.mode = mode or ("min" if lower_is_better(best) else "max")
        self.forever = parse_written(forever, unit="epoch") if forever is not None else None
        self.at_end, self.weights_only, self.failures, self.debug = save_last, weights_only, failures, debug
        self.folder = folder
        self.best_value: float | None = None
        self.best_step = self._ranked_at = -1
        self._top: list[float] = []
        self._evaluated_at = -1
        self.retention(None)  # raises for values that make no rule

    def attach(self, run: Run) -> None:
        """Find a misspelt metric before training, not after the first evaluation."""
        if not self.best:
            return
        if "val" not in run.data:
            raise ConfigError(f"checkpoint.best: {self.best!r} needs an evaluation, and there is no data.val")
        metrics = getattr(run.evaluation, "metrics", {})
        # What other metrics return (a user's, or one that a converted config adapts) is known only after an evaluation.
        own = all(type(metric).__module__.startswith("etude.metrics.") for metric in metrics.values())
        own = own and not hasattr(run.model, "validation_step")
        known = {"loss"}.union(*(getattr(metric, "results", (name,)) for name, metric in metrics.items()))
        known |= {f"{split}/{name}" for split in run.data if split.startswith("val_") for name in known}
        groups = ("loss/", *(name for name in known if name.endswith("/")))
        if own and self.best not in known and not self.best.startswith(groups):
            raise ConfigError(f"checkpoint.best: no metric {self.best!r}", hint=suggest(self.best, known))

    @property
    def watches(self) -> tuple[str, ...]:
        """The results of an evaluation that it needs."""
        return (self.best,) if self.best else ()

    def retention(self, steps_per_epoch: int | None) -> Retention:
        """Return the retention rule in steps; ``forever`` may be written in epochs."""
        known = self.forever is not None and (steps_per_epoch is not None or self.forever.unit == "step")
        forever = self.forever.steps(steps_per_epoch) if self.forever is not None and known else 0
        return Retention(
            last=self.keep, best=self.best_k if self.best else 0, metric=self.best, mode=self.mode, forever=forever
        )

    def act(self, run: Run) -> None:
        if run.store is not None:
            run.store.save(run, metrics=self.fresh_metrics(run), weights_only=self.weights_only)

    def after_eval(self, run: Run) -> None:
        self._evaluated_at = run.done
        value = run.metrics.get(self.best) if self.best else None
        if self.best and value is None:
            hint = suggest(self.best, run.metrics)
            warnings.warn(f"checkpoint.best: the evaluation gave no {self.best!r}; {hint}", stacklevel=2)
        if value is not None and improves(value, self.best_value, lower=self.mode == "min"):
            self.best_value, self.best_step = value, run.done
        if value is not None and improves(value, self._least(), lower=self.mode == "min"):
            self._top = sorted([*self._top, value], reverse=self.mode == "max")[: self.best_k]
            self._ranked_at = run.done

    def _least(self) -> float | None:
        """Return the score that a new checkpoint must beat to be among the ``best_k``; None while fewer are kept."""
        return self._top[-1] if len(self._top) >= self.best_k else None

    def has_new_best(self, run: Run) -> bool:
        """Return whether the evaluation of this very step was among the ``best_k`` best so far."""
        return self._ranked_at == run.done and self._evaluated_at == run.done

    def fresh_metrics(self, run: Run) -> dict[str, float]:
        """Return the metrics that were measured on the current weights; older results do not describe them."""
        return dict(run.metrics) if self._evaluated_at == run.done else {}

    def state_dict(self) -> dict[str, Any]:
        own = {"best_value": self.best_value, "best_step": self.best_step, "evaluated_at": self._evaluated_at}
        return super().state_dict() | own | {"top": list(self._top), "ranked_at": self._ranked_at}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.best_value, self.best_step = state["best_value"], int(state["best_step"])
        self._evaluated_at = int(state["evaluated_at"])
        # Checkpoints of earlier releases hold the best score alone.
        alone = [] if self.best_value is None else [self.best_value]
        self._top, self._ranked_at = list(state.get("top", alone)), int(state.get("ranked_at", self.best_step))

    def after_train(self, run: Run) -> None:
        """Save after a signal, if there are steps since the last checkpoint, even if ``save_last`` is off.

        A ``weights_only`` hook saves the full state then, because a stopped run is going to be resumed.
        """
        if not run.exit_code or run.error is not None or run.done == 0 or run.store is None:
            return
        if self.weights_only:
            run.store.save(run)
        elif run.done != self._acted_at:
            self._act(run)
