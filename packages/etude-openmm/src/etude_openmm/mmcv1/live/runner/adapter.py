"""Adapts mmcv hooks, so that Étude's training loop can call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from etude.core.hook import Hook as EngineHook
from etude.core.hook import WrappingHook, with_subject
from etude_openmm.mmcv1.live.hooks.hook import Hook

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

#: Stages of mmcv → callback points of Étude. All hooks of ``after_train_iter`` act at one point, as the optimizer hook,
#: which makes the update, is one of them.
POINT = {
    "before_run": "before_run",
    "before_train_epoch": "before_epoch",
    "before_train_iter": "before_step",
    "after_train_iter": "after_step",
    "after_train_epoch": "after_epoch",
    "before_val_epoch": "before_eval",
    "before_val_iter": "before_eval_step",
    "after_val_iter": "after_eval_step",
    "after_val_epoch": "after_eval",
    "after_run": "after_run",
}


_STAGE = {point: stage for stage, point in POINT.items()}


class Adapted(WrappingHook):
    """Wraps one mmcv hook: Étude's points call its stages with the runner."""

    def __init__(self, hook: Hook, runner: BaseRunner) -> None:
        self.hook, self.runner = hook, runner
        self.priority = getattr(hook, "priority", 50)

    def word_for(self, point: str) -> str:
        return _STAGE[point]

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        return {
            point: with_subject(self.hook.method_for(stage), self.runner)
            for stage, point in POINT.items()
            if self.hook.acts_at(stage)
        }


class Routed(EngineHook):
    """Calls ``runner.call_hook`` at every stage, for runner classes that override it."""

    def __init__(self, runner: BaseRunner) -> None:
        self.runner = runner

    @property
    def name(self) -> str:
        return type(self.runner).__name__

    def word_for(self, point: str) -> str:
        return _STAGE[point]

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        return {point: with_subject(self.runner.call_hook, stage) for stage, point in POINT.items()}
