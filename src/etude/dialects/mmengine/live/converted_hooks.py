"""Hooks of MMEngine in converted configs: their methods at the points of a native run, called with a view of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etude.core.hook import Call, origin_of
from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.dialects.mmengine.live import registry, user_errors
from etude.dialects.mmengine.live.converted_data import initialise
from etude.dialects.mmengine.live.converted_view import View, view_of
from etude.dialects.mmengine.live.hooks.hook import acts_at
from etude.dialects.openmm.escaped_types import restored
from etude.registry import HOOKS

#: Behind the validation of the planned end (70), before the last checkpoint (110).
_LATE = 105
#: The engine's points in MMEngine's words.
_WORDS = {
    "before_epoch": "before_train_epoch", "before_step": "before_train_iter", "after_step": "after_train_iter",
    "after_epoch": "after_train_epoch", "before_eval": "before_val_epoch", "before_eval_step": "before_val_iter",
    "after_eval_step": "after_val_iter", "after_eval": "after_val_epoch",
}  # fmt: skip


@HOOKS.register(name="mmengine.Hook")
class Hook(EngineHook):
    """A hook of MMEngine's registry, or the user's own. In a run by iterations the points of an epoch come once."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.hook = registry.HOOKS.build(restored(config))
        self._view: View | None = None
        self._batch = 0

    @property
    def name(self) -> str:
        return type(self.hook).__name__

    @property
    def origin(self) -> str:
        return origin_of(type(self.hook))

    def word_for(self, point: str) -> str:
        return _WORDS.get(point, point)

    def attach(self, run: Run) -> None:
        """Before a checkpoint is loaded. The hook itself begins with ``mmengine.Begin``."""
        self._view = view_of(run)
        ends = ["after_train"] if self._view.by_epochs else ["after_train_epoch", "after_train"]
        if self._acts(*ends):
            run.hooks.add(End(self, ends))

    def calls(self) -> Mapping[str, Call]:
        view = self._view
        if view is None:
            return {}
        epochs = {"before_epoch": "before_train_epoch", "after_epoch": "after_train_epoch"} if view.by_epochs else {}
        made: dict[str, Call] = {point: self._in_turn(stage) for point, stage in epochs.items() if self._acts(stage)}
        begin = ["before_train", *(() if view.by_epochs else ("before_train_epoch",))]
        if self._acts(*begin):
            made["before_train"] = self._in_turn(*begin)
        for point, stage in (("before_step", "before_train_iter"), ("after_step", "after_train_iter")):
            if self._acts(stage):
                made[point] = self._iteration(stage)
        return {
            **made,
            **self._evaluation(),
            **({"after_run": self._in_turn("after_run")} if self._acts("after_run") else {}),
        }

    def _evaluation(self) -> dict[str, Call]:
        """The points of a validation, where the epoch or iteration before it counts as finished."""
        points: dict[str, tuple[Call, tuple[str, ...]]] = {
            "before_eval": (self._begin_evaluation, ("before_val", "before_val_epoch")),
            "before_eval_step": (self._before_batch, ("before_val_iter",)),
            "after_eval_step": (self._after_batch, ("after_val_iter",)),
            "after_eval": (self._end_evaluation, ("after_val_epoch", "after_val")),
        }
        acting = {point: call for point, (call, stages) in points.items() if self._acts(*stages)}
        if {"before_eval_step", "after_eval_step"} & set(acting):
            acting["before_eval"], acting["after_eval_step"] = self._begin_evaluation, self._after_batch
        return acting

    def _acts(self, *stages: str) -> bool:
        return any(acts_at(self.hook, stage) for stage in stages)

    def _call(self, stage: str, **arguments: Any) -> None:
        if not acts_at(self.hook, stage):
            return
        method: Callable[..., Any] = getattr(self.hook, stage)
        try:
            method(self._view, **arguments)
        except TypeError as error:
            user_errors.of_call(error, method)
            raise

    def _in_turn(self, *stages: str) -> Call:
        def call(run: Run) -> None:
            for stage in stages:
                self._call(stage)

        return call

    def _iteration(self, stage: str) -> Call:
        view, ends = self._view, stage.startswith("after")
        assert view is not None

        def call(run: Run) -> None:
            index = run.step_in_epoch if view.by_epochs else run.step
            outputs = {"outputs": run.outputs} if ends else {}
            self._call(stage, batch_idx=index, data_batch=run.batch, **outputs)

        return call

    def _begin_evaluation(self, run: Run) -> None:
        self._batch = 0
        self._while_evaluating("before_val")
        self._while_evaluating("before_val_epoch")

    def _before_batch(self, run: Run) -> None:
        self._while_evaluating("before_val_iter", batch_idx=self._batch, data_batch=run.batch)

    def _after_batch(self, run: Run) -> None:
        self._while_evaluating("after_val_iter", batch_idx=self._batch, data_batch=run.batch, outputs=run.outputs)
        self._batch += 1

    def _end_evaluation(self, run: Run) -> None:
        self._while_evaluating("after_val_epoch", metrics=run.metrics)
        self._while_evaluating("after_val")

    def _while_evaluating(self, stage: str, **arguments: Any) -> None:
        assert self._view is not None
        with self._view.evaluation():
            self._call(stage, **arguments)

    def at(self, *stages: str) -> None:
        """Points that no point of the engine is quite the same as."""
        for stage in stages:
            self._call(stage)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.hook.state_dict()) if hasattr(self.hook, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if hasattr(self.hook, "load_state_dict"):
            self.hook.load_state_dict(dict(state))


@HOOKS.register(name="mmengine.Begin")
class Begin(EngineHook):
    """What a runner does when everything is built and nothing loaded: ``before_run`` of hooks, then the weights."""

    priority = _LATE

    def attach(self, run: Run) -> None:
        for hook in run.hooks:
            if isinstance(hook, Hook):
                hook.at("before_run")
        initialise(run.model)


class End(EngineHook):
    """What a hook does when training has come to its end: behind the last validation, and not after an error."""

    priority = _LATE

    def __init__(self, hook: Hook, stages: list[str]) -> None:
        self.hook, self.stages = hook, stages

    @property
    def name(self) -> str:
        return self.hook.name

    def after_train(self, run: Run) -> None:
        if run.error is None:
            self.hook.at(*self.stages)
