"""As much of a runner as hooks of MMEngine look at, read from a native run."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from etude.core.hook import Call
from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.dialects.mmengine.hook_sources import RUNNER
from etude.dialects.mmengine.live.logging.logger import MMLogger
from etude.dialects.mmengine.live.logging.message_hub import MessageHub
from etude.errors import UserCodeError
from etude.hooks.evaluate import Evaluate


class View:
    """Counters, parts and places of a run under MMEngine's names; what is missing is an error when you ask for it."""

    launcher = "none"
    #: The native store brings everything back by itself, so the answer is always that the run is resumed.
    _resume = True

    def __init__(self, run: Run) -> None:
        self.run = run
        self.message_hub, self.visualizer = hub_of(run), Scalars(run)
        self.timestamp = time.strftime("%Y%m%d_%H%M%S")
        self.train_loop = self._train_loop = TrainLoop(self)
        self._evaluates = False

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """While a validation asks: the epoch or iteration before it is finished."""
        self._evaluates = True
        try:
            yield
        finally:
            self._evaluates = False

    @property
    def by_epochs(self) -> bool:
        return self.run.max_epochs is not None

    @property
    def epoch(self) -> int:
        """Of a run by iterations 0, however often its data has begun again."""
        if not self.by_epochs:
            return 0
        return max(self.run.epoch, self.run.epochs_done) if self._evaluates else self.run.epoch

    @property
    def iter(self) -> int:
        return self.run.done if self._evaluates else self.run.step

    @property
    def max_epochs(self) -> int:
        return self.run.max_epochs if self.run.max_epochs is not None else 1

    @property
    def max_iters(self) -> int | None:
        return self.run.total_steps

    @property
    def model(self) -> Any:
        return self.run.model

    @property
    def model_name(self) -> str:
        return type(self.run.model).__name__

    @property
    def optim_wrapper(self) -> Any:
        return self.run.update.wrapper  # type: ignore[attr-defined]

    @property
    def param_schedulers(self) -> Any:
        return next((hook.schedulers for hook in self.run.hooks if hook.name == "ParamSchedulers"), [])

    @property
    def train_dataloader(self) -> Any:
        return self.run.data["train"]

    @property
    def val_dataloader(self) -> Any:
        return self.run.data["val"]

    @property
    def logger(self) -> Any:
        return MMLogger.get_current_instance()

    @property
    def work_dir(self) -> str:
        return str(self.run.folder or ".")

    log_dir = work_dir

    @property
    def rank(self) -> int:
        return self.run.world.rank

    @property
    def world_size(self) -> int:
        return self.run.world.size

    @property
    def distributed(self) -> bool:
        return self.run.world.size > 1

    @property
    def seed(self) -> int:
        assert self.run.plan is not None
        return self.run.plan.train.seed

    @property
    def deterministic(self) -> bool:
        assert self.run.plan is not None
        return self.run.plan.train.deterministic

    @property
    def experiment_name(self) -> str:
        return self.run.plan.name if self.run.plan is not None else "run"

    def tell_rates(self) -> None:
        """The learning rates into the hub, where hooks look for them."""
        for name, values in self.optim_wrapper.get_lr().items():
            self.message_hub.note(f"train/{name}", values[0])

    def tell(self, outputs: Mapping[str, Any]) -> None:
        """What ``train_step`` returned, into the hub."""
        for name, value in outputs.items():
            self.message_hub.note(f"train/{name}", value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _missing(f"runner.{name}", RUNNER)


class TrainLoop:
    """The counters of a train loop, and the wish to end it: after the current epoch or iteration and its validation."""

    def __init__(self, view: View) -> None:
        self._view, self._stops = view, False

    @property
    def stop_training(self) -> bool:
        return self._stops

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        self._stops = value

    @property
    def dataloader(self) -> Any:
        return self._view.train_dataloader

    def __getattr__(self, name: str) -> Any:
        known = RUNNER["train_loop"]
        if name in known:
            return getattr(self._view, name)
        raise AttributeError(name) if name.startswith("__") else _missing(f"runner.train_loop.{name}", known)


class StopTraining(EngineHook):
    """Ends the run when everybody has acted; without the validation that a run has at its planned end."""

    priority = 105

    def __init__(self, view: View) -> None:
        self.view = view

    def calls(self) -> Mapping[str, Call]:
        return {"after_epoch" if self.view.by_epochs else "after_step": self._end_if_asked}

    def _end_if_asked(self, run: Run) -> None:
        if self.view.train_loop.stop_training:
            run.stop("a hook set stop_training")
            for hook in run.hooks:
                if isinstance(hook, Evaluate):
                    hook.at_end = False


class Scalars:
    """A visualizer whose scalars go to the log of the run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._run.events.put(name, value)

    def add_scalars(self, scalar_dict: Mapping[str, Any], step: int = 0, **kwargs: Any) -> None:
        for name, value in scalar_dict.items():
            self.add_scalar(name, value, step)

    def __getattr__(self, name: str) -> Any:
        known = RUNNER["visualizer"]
        raise AttributeError(name) if name.startswith("__") else _missing(f"runner.visualizer.{name}", known)


class Hub(MessageHub):
    """A hub whose scalars of training are also those of the run's log."""

    def __init__(self, name: str, run: Run) -> None:
        super().__init__(name)
        self.run = weakref.ref(run)

    def update_scalar(self, key: str, value: Any, count: int = 1, resumed: bool = True) -> None:
        super().update_scalar(key, value, count, resumed)
        run = self.run()
        if run is not None:
            run.events.put(key.removeprefix("train/"), value)

    def note(self, key: str, value: Any) -> None:
        """A scalar that the log has already."""
        super().update_scalar(key, value)


def hub_of(run: Run) -> Hub:
    """The hub of this run, which models and hooks find as the current one."""
    name = f"{run.plan.name if run.plan is not None else 'run'}_{id(run)}"
    known = MessageHub._instance_dict.get(name)
    if isinstance(known, Hub) and known.run() is run:
        return known
    made = Hub(name, run)
    MessageHub._instance_dict.pop(name, None)
    MessageHub._instance_dict[name] = made
    return made


def view_of(run: Run) -> View:
    """The one view of this run."""
    update: Any = run.update
    if getattr(update, "view", None) is None:
        update.view = View(run)
        run.hooks.add(StopTraining(update.view))
    view: View = update.view
    return view


class NotThere(UserCodeError, AttributeError):
    """Something of a runner that a native run does not have."""


def _missing(what: str, known: Iterable[str]) -> NotThere:
    return NotThere(f"a converted hook asks for {what}, which a native run does not have; known: {', '.join(known)}")
