"""Sets learning rates and other values: those of the plan before every step, or by a scheduler of torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import lr_scheduler

from etude.core.hook import Call, Hook
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.plan import Schedule as SchedulePlan
from etude.plan import Spec
from etude.schedules.phases import Timeline, resolve

if TYPE_CHECKING:
    from etude.core.run import Run

Set = Callable[[float], None]
#: Schedulers of torch that are made to be stepped after every batch.
_BY_STEP = (lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR)


class Schedule(Hook):
    """Writes learning rates, momenta, any group option and attributes of the model.

    Without ``schedules`` those of the run's plan are taken. Base values are read once, before the first step; then a
    step costs a float per schedule and an assignment per group, and nothing where the value stays.
    """

    priority = 10

    def __init__(self, schedules: Sequence[SchedulePlan] | None = None) -> None:
        self.given: Sequence[SchedulePlan] = schedules or ()
        self._of_plan = schedules is None
        self._lines: list[tuple[Timeline, list[Set]]] | None = None
        self._last: list[float | None] = []

    def attach(self, run: Run) -> None:
        """Resolve the schedules for this run and remember the base values of the parameter groups."""
        plans = run.plan.schedules if self._of_plan and run.plan is not None else self.given
        timelines = [resolve(p, steps_per_epoch=run.steps_per_epoch, total_steps=run.total_steps) for p in plans]
        self._lines = [(timeline, setters(run, timeline)) for timeline in timelines]
        self._last = [None] * len(timelines)

    @property
    def moves_momentum(self) -> bool:
        return any(timeline.target == "momentum" for timeline, _ in self._lines or ())

    def curves(self) -> list[Any]:
        """Return the curves that a script has passed as objects or functions."""
        phases = [phase for plan in self.given for phase in plan.phases]
        return [phase.curve for phase in phases if not isinstance(phase.curve, Spec)]

    @property
    def watches(self) -> tuple[str, ...]:
        """The results of an evaluation that its curves need."""
        return tuple(curve.metric for curve in self._reactive())

    def before_run(self, run: Run) -> None:
        if self._lines is None:
            self.attach(run)

    def before_step(self, run: Run) -> None:
        lines = self._lines or ()
        for number, (timeline, sets) in enumerate(lines):
            factor = timeline.factor(run.step)
            if factor != self._last[number]:
                self._last[number] = factor
                for set_value in sets:
                    set_value(factor)

    def after_eval(self, run: Run) -> None:
        for timeline, _ in self._lines or ():
            for curve in timeline.reactive:
                if curve.metric not in run.metrics:
                    hint = suggest(curve.metric, run.metrics)
                    raise ConfigError(f"Plateau: no evaluation gives a metric {curve.metric!r}", hint=hint)
                curve.observe(run.metrics[curve.metric])

    def after_load(self, run: Run) -> None:
        # The optimizers' groups have the values of the checkpoint now.
        self._last = [None] * len(self._last)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of curves that react to results; all others follow from the step."""
        return {"reactive": [curve.state_dict() for curve in self._reactive()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for curve, own in zip(self._reactive(), state["reactive"], strict=True):
            curve.load_state_dict(own)
        self._last = [None] * len(self._last)

    def _reactive(self) -> list[Any]:
        return [curve for timeline, _ in self._lines or () for curve in timeline.reactive]


def setters(run: Run, timeline: Timeline) -> list[Set]:
    """Return a function per group (or for the attribute) that takes a factor and writes base times factor."""
    if timeline.target.startswith("model."):
        return [_attribute_setter(run.model, timeline.target.removeprefix("model."))]
    chosen = {timeline.optimizer: run.optimizers[timeline.optimizer]} if timeline.optimizer else run.optimizers
    places = [
        (optimizer, index, group)
        for optimizer in chosen.values()
        for index, group in enumerate(optimizer.param_groups)
        if not timeline.groups or any(fnmatchcase(str(group.get("name", index)), name) for name in timeline.groups)
    ]
    if not places:
        names = [str(group.get("name", "")) for opt in chosen.values() for group in opt.param_groups]
        wanted = ", ".join(timeline.groups)
        message = f"schedule of {timeline.target}: no parameter group is called {wanted}"
        raise ConfigError(message, hint=suggest(wanted, names))
    return [_group_setter(optimizer, index, timeline.target) for optimizer, index, _ in places]


def _group_setter(optimizer: Any, index: int, target: str) -> Set:
    """Return a setter that looks its group up at every call, because loading a state replaces the groups."""
    group = optimizer.param_groups[index]
    if "betas" in group and (target in ("beta1", "beta2") or (target == "momentum" and "momentum" not in group)):
        return _beta_setter(optimizer, index, int(target == "beta2"))
    if target not in group or not isinstance(group[target], int | float | Tensor):
        known = [name for name, value in group.items() if isinstance(value, float)]
        raise ConfigError(f"schedule: {type(optimizer).__name__} has no number {target!r}", hint=suggest(target, known))
    base = group[target]
    if isinstance(base, Tensor):
        return _tensor_setter(optimizer, index, target, base.clone())

    def set_value(factor: float) -> None:
        optimizer.param_groups[index][target] = base * factor

    return set_value


def _tensor_setter(optimizer: Any, index: int, target: str, base: Tensor) -> Set:
    def set_value(factor: float) -> None:
        optimizer.param_groups[index][target].copy_(base * factor)

    return set_value


def _beta_setter(optimizer: Any, index: int, which: int) -> Set:
    base = optimizer.param_groups[index]["betas"][which]

    def set_value(factor: float) -> None:
        group = optimizer.param_groups[index]
        betas = list(group["betas"])
        betas[which] = base * factor
        group["betas"] = tuple(betas)

    return set_value


def _attribute_setter(model: Any, path: str) -> Set:
    owner_path, _, name = path.rpartition(".")
    owner = model
    for part in filter(None, owner_path.split(".")):
        if not hasattr(owner, part):
            raise ConfigError(f"schedule: the model has no {owner_path!r}", hint=suggest(part, _attributes(owner)))
        owner = getattr(owner, part)
    if not hasattr(owner, name):
        raise ConfigError(f"schedule: the model has no attribute {path!r}", hint=suggest(name, _attributes(owner)))
    base = getattr(owner, name)
    if isinstance(base, bool) or not isinstance(base, int | float):
        raise ConfigError(f"schedule: model.{path} is {type(base).__name__}, not a number")

    def set_value(factor: float) -> None:
        setattr(owner, name, base * factor)

    return set_value


def _attributes(owner: Any) -> list[str]:
    return [name for name in (*vars(owner), *getattr(owner, "_modules", ())) if not name.startswith("_")]


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
        if self._waits and by == "accuracy" and scheduler.mode == "min":
            text = "schedule: the ReduceLROnPlateau waits for the accuracy to fall; give it mode='max'"
            warnings.warn(text, stacklevel=4)

    def attach(self, run: Run) -> None:
        """Find a missing evaluation before training; without one a ReduceLROnPlateau would never be stepped."""
        if self._waits and "val" not in run.data:
            raise ConfigError(f"schedule: ReduceLROnPlateau watches {self.by!r}, and there is no validation data")

    @property
    def watches(self) -> tuple[str, ...]:
        """The results of an evaluation that the scheduler needs."""
        return (self.by,) if self._waits else ()

    @property
    def moves_momentum(self) -> bool:
        return bool(getattr(self.scheduler, "cycle_momentum", False))

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
