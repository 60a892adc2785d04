"""What converted configs name: parts of mmcv 1.x at work in the native engine.

``etude convert`` writes native configs; where mmcv's way cannot be said in native words without changing a bit of the
result, they name one of these.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.dialects.mmcv1.live.checks import WrongOutputs
from etude.dialects.mmcv1.live.converted.runner_view import View, kept_weights, view_of
from etude.dialects.mmcv1.live.hooks import all_hooks as mmcv_hooks
from etude.dialects.mmcv1.live.hooks.hook import HOOKS as MMCV_HOOKS
from etude.dialects.mmcv1.live.hooks.hook import Hook as MmcvHook
from etude.dialects.mmcv1.live.hooks.optimizer_hook import loss_of
from etude.dialects.mmcv1.live.mmcls import train as mmcls_train
from etude.dialects.mmcv1.live.mmcls.data import build_dataset
from etude.dialects.mmcv1.live.mmcls.models import build_classifier
from etude.dialects.mmcv1.live.mmtrack import train as mmtrack_train
from etude.dialects.mmcv1.live.mmtrack.data import build_dataset as build_frames
from etude.dialects.mmcv1.live.mmtrack.models import build_model as build_tracker
from etude.dialects.mmcv1.live.optimizers import OPTIMIZERS as MMCV_OPTIMIZERS
from etude.dialects.mmcv1.live.optimizers import build_optimizer
from etude.dialects.openmm.escaped_types import restored
from etude.dialects.openmm.init import notes as init_notes
from etude.plan import PRIORITIES
from etude.registry import DATASETS, HOOKS, MODELS, OPTIMIZERS, UPDATES

#: Imported for the hooks that configs may name.
REGISTERED = (mmcv_hooks, mmcls_train, mmtrack_train)
#: Where mmcv's optimizer hook acts: what comes earlier at ``after_train_iter`` sees the weights before the update.
UPDATES_AT = PRIORITIES["ABOVE_NORMAL"]


@MODELS.register(name="mmcv1.Model")
def model(config: Mapping[str, Any], project: str = "mmcls") -> Any:
    """The model of the project's registries, its weights initialised as the train script does."""
    made = (build_tracker if project == "mmtrack" else build_classifier)(restored(config))
    if hasattr(made, "init_weights"):
        with init_notes.untold():
            made.init_weights()
    return made


@DATASETS.register(name="mmcv1.Dataset")
def dataset(config: Any, test_mode: bool = False, late: bool = False, project: str = "mmcls") -> Any:
    """The data of the project's registries; ``test_mode`` as an evaluation builds them, ``late`` when they are used."""
    build = build_frames if project == "mmtrack" else build_dataset
    if late:
        return Late(lambda: build(restored(config), {"test_mode": True}))
    return build(restored(config), {"test_mode": True} if test_mode else None)


class Late:
    """Data that training never looks at: nothing is opened or drawn before somebody does."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build, self._made = build, None

    def made(self) -> Any:
        if self._made is None:
            self._made = self._build()
        return self._made

    def __iter__(self) -> Iterator[Any]:
        made = self.made()
        return (made[index] for index in range(len(made)))


@OPTIMIZERS.register(name="mmcv1.Optimizer")
def optimizer(params: Any, config: Mapping[str, Any]) -> Any:
    """An optimizer of mmcv's registry, where users' own are."""
    return MMCV_OPTIMIZERS.build({**restored(config), "params": params})


@OPTIMIZERS.register(name="mmcv1.Constructed")
def constructed(params: Any) -> Any:
    """Stands where the hook ``mmcv1.Groups`` puts what a user-defined constructor makes."""
    return torch.optim.SGD(params, lr=0.0)


@UPDATES.register(name="mmcv1.TrainStep")
class TrainStep:
    """``model.train_step``, then what mmcv's OptimizerHook does: clear, backward, clip, step.

    ``hook`` is another of mmcv's optimizer hooks that does it; with ``steps=False`` the model has done it itself.
    """

    view: View | None = None

    def __init__(
        self,
        forward: Any,
        optimizers: Mapping[str, torch.optim.Optimizer],
        grad_clip: Mapping[str, Any] | None = None,
        hook: Mapping[str, Any] | None = None,
        steps: bool = True,
    ) -> None:
        self.model = forward.model
        self.optimizer: Any = next(iter(optimizers.values()))
        self.grad_clip = dict(grad_clip) if grad_clip is not None else None
        self.hook: MmcvHook | None = MMCV_HOOKS.build(restored(hook)) if hook is not None else None
        self.steps = steps

    def __call__(self, run: Run, batch: Any) -> Any:
        outputs = self.model.train_step(batch, self.optimizer)
        if not isinstance(outputs, dict):
            name, kind = type(self.model).__name__, type(outputs).__name__
            raise WrongOutputs(f"train_step of {name} must return a dict, got {kind}")
        run.outputs = outputs
        if run.hooks.after_forward:
            run.hooks.after_forward(run)
        if self.hook is not None:
            view = view_of(run)
            self.hook.after_train_iter(view)  # type: ignore[arg-type]
            view.hand_over()
        elif self.steps:
            self._step(run)
        for name, value in run.outputs.get("log_vars", {}).items():
            run.events.put(name, value)
        return run.outputs

    def _step(self, run: Run) -> None:
        self.optimizer.zero_grad()
        loss_of(view_of(run)).backward()  # type: ignore[arg-type]
        if self.grad_clip is not None:
            self._clip(run)
        if run.hooks.before_update:
            run.hooks.before_update(run)
        self.optimizer.step()

    def _clip(self, run: Run) -> None:
        parameters = [p for p in self.model.parameters() if p.requires_grad and p.grad is not None]
        if parameters:
            run.events.put("grad_norm", torch.nn.utils.clip_grad_norm_(parameters, **(self.grad_clip or {})))


@HOOKS.register(name="mmcv1.Groups")
class Groups(EngineHook):
    """The optimizer made by mmcv's constructor, whose rules look at modules, from the ``config`` of the original.

    A user-defined constructor may make several, by name.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = restored(config)

    def attach(self, run: Run) -> None:
        """Before anybody has looked at the groups."""
        made = build_optimizer(view_of(run).model, self.config)
        several = made if isinstance(made, dict) else {next(iter(run.optimizers)): made}
        run.optimizers.clear()
        run.optimizers.update(several)
        run.update.optimizer = made  # type: ignore[attr-defined]


_STAGES = {
    "before_run": "before_run", "before_epoch": "before_train_epoch", "before_step": "before_train_iter",
    "after_step": "after_train_iter", "after_epoch": "after_train_epoch", "after_run": "after_run",
}  # fmt: skip


class Adapted(EngineHook):
    """A hook of mmcv at the points of a native run.

    ``epochs=False`` is the way of iteration runners: no epoch stages, the generic ones once around the run.
    """

    def __init__(self, hook: MmcvHook, *, epochs: bool = True) -> None:
        self.hook, self.epochs = hook, epochs
        self._view: View | None = None

    @property
    def name(self) -> str:
        return type(self.hook).__name__

    def calls(self) -> Mapping[str, Callable[[Run], Any]]:
        stages = {
            self._point(point): self._caller(stage)
            for point, stage in _STAGES.items()
            if self.hook.acts_at(stage) and (self.epochs or not point.endswith("epoch"))
        }
        if "before_run" in stages:
            stages["before_run"] = self.attach
        return {**stages, **(self._inside_an_epoch() if self.epochs else self._around_the_run(stages))}

    def _point(self, point: str) -> str:
        """Hooks that act before the optimizer's do so between ``train_step`` and the update."""
        return "after_forward" if point == "after_step" and self.priority < UPDATES_AT else point

    def _inside_an_epoch(self) -> dict[str, Callable[[Run], Any]]:
        """A run that goes on inside an epoch begins it once more: what hooks set there is in no checkpoint."""
        if not self.hook.acts_at("before_train_epoch"):
            return {}
        begin = self._caller("before_train_epoch")

        def go_on(run: Run) -> None:
            if 0 < run.step_in_epoch != run.steps_per_epoch:
                self._repeat(begin, run)

        return {"before_train": go_on}

    def _repeat(self, begin: Callable[[Run], Any], run: Run) -> None:
        """What the hook does to weights, rates and its own state was done before they were saved."""
        if type(self.hook).__module__.startswith("etude."):
            begin(run)
            return
        state, groups = copy.deepcopy(self.state_dict()), view_of(run).settings()
        with kept_weights(run.model):
            begin(run)
        view_of(run).put_back(groups)
        self.load_state_dict(state)

    def _around_the_run(self, stages: Mapping[str, Callable[[Run], Any]]) -> dict[str, Callable[[Run], Any]]:
        kind, found = type(self.hook), dict[str, Callable[[Run], Any]]()
        if kind.before_epoch is not MmcvHook.before_epoch:
            begin = self._caller("before_epoch")
            found["before_train"] = lambda run: self._repeat(begin, run) if run.step else begin(run)
        if kind.after_epoch is not MmcvHook.after_epoch:
            end, rest = self._caller("after_epoch"), stages.get("after_run")

            def finish(run: Run) -> None:
                if not run.stopping:
                    end(run)
                if rest is not None:
                    rest(run)

            found["after_run"] = finish
        return found

    def attach(self, run: Run) -> None:
        """Let the hook begin before a checkpoint is loaded: what it adds to the model must be there by then."""
        if self._view is None:
            self._view = view_of(run)
            self.hook.before_run(self._view)  # type: ignore[arg-type]

    def _caller(self, stage: str) -> Callable[[Run], Any]:
        method = getattr(self.hook, stage)

        def call(run: Run) -> None:
            self.attach(run)
            method(self._view)
            self._view.hand_over()  # type: ignore[union-attr]

        return call

    def call(self, stage: str, run: Run) -> None:
        """A stage that is no point of the engine, such as those of validation epochs."""
        if self.hook.acts_at(stage):
            self._caller(stage)(run)

    def state_dict(self) -> dict[str, Any]:
        """Its own, and the scale of the loss, which mmcv keeps in the ``meta`` of its files."""
        own: dict[str, Any] = dict(self.hook.state_dict()) if hasattr(self.hook, "state_dict") else {}
        scaler = getattr(self.hook, "loss_scaler", None)
        return own if scaler is None else {**own, "loss_scaler": scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        own = dict(state)
        scale = own.pop("loss_scaler", None) if hasattr(self.hook, "loss_scaler") else None
        if scale:
            self.hook.loss_scaler.load_state_dict(scale)  # type: ignore[attr-defined]
        if hasattr(self.hook, "load_state_dict"):
            self.hook.load_state_dict(own)


def call_hooks(stage: str, run: Run) -> None:
    """A stage that is no point of the engine, of every hook of mmcv."""
    for hook in run.hooks:
        if isinstance(hook, Adapted):
            hook.call(stage, run)


@HOOKS.register(name="mmcv1.Hook")
class Hook(Adapted):
    """A hook of mmcv. ``epochs: false`` leaves out its epoch stages, which an iteration runner never calls."""

    def __init__(self, config: Mapping[str, Any], epochs: bool = True) -> None:
        super().__init__(MMCV_HOOKS.build(restored(config)), epochs=epochs)


class Updating(Adapted):
    """An optimizer hook that the update calls itself: the rest of its stages, and its state."""

    priority = UPDATES_AT

    def calls(self) -> Mapping[str, Callable[[Run], Any]]:
        return {point: call for point, call in super().calls().items() if point != "after_step"}
