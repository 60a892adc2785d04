"""Steps a scheduler of ``torch.optim.lr_scheduler`` with the run, and keeps its state in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch.optim import lr_scheduler

from etude.core.hook import Call, Hook
from etude.errors import ConfigError, suggest

if TYPE_CHECKING:
    from etude.core.run import Run

#: Schedulers of torch that are made to be stepped after every batch.
_BY_STEP = (lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR)


class TorchSchedule(Hook):
    """Calls ``scheduler.step()`` after every epoch, or after every update of the weights with ``by="step"``.

    A ``ReduceLROnPlateau`` is stepped after every evaluation with the result called ``by`` (``"accuracy"``).
    The state of the scheduler is a part of every checkpoint, so that a resumed run has the same learning rates.
    """

    priority = 65  # after the step is logged with the rate it had, before it is saved

    def __init__(self, scheduler: Any, by: str = "", *, among: Iterable[Any] = ()) -> None:
        name, own = type(scheduler).__name__, list(among)
        if own and not any(scheduler.optimizer is one for one in own):
            raise ConfigError(f"schedule: the {name} drives an optimizer that is not the trainer's")
        self.scheduler = scheduler
        self._waits = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        usual = "loss" if self._waits else "step" if isinstance(scheduler, _BY_STEP) else "epoch"
        self.by = by or usual
        if not self._waits and self.by not in ("step", "epoch"):
            raise ConfigError(f"schedule_by: a {name} is stepped by 'step' or by 'epoch', not by {self.by!r}")
        if self._waits and not by and scheduler.mode == "max":
            hint = "name it: schedule_by='accuracy'"
            raise ConfigError(
                "schedule: a ReduceLROnPlateau with mode='max' needs the metric that it watches", hint=hint
            )

    def attach(self, run: Run) -> None:
        """Find a missing evaluation before training; without one a ReduceLROnPlateau would never be stepped."""
        if self._waits and "val" not in run.data:
            raise ConfigError(f"schedule: ReduceLROnPlateau watches {self.by!r}, and there is no validation data")

    def calls(self) -> Mapping[str, Call]:
        point = "after_eval" if self._waits else "after_step" if self.by == "step" else "after_epoch"
        return {point: self._step}

    def _step(self, run: Run) -> None:
        if self._waits:
            if self.by not in run.metrics:
                hint = suggest(self.by, run.metrics)
                raise ConfigError(f"schedule: no evaluation gives a metric {self.by!r}", hint=hint)
            self.scheduler.step(run.metrics[self.by])
        elif self.by == "epoch" or not getattr(run.update, "pending", 0):
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scheduler.load_state_dict(dict(state))
