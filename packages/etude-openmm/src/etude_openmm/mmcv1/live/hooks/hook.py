"""mmcv's ``Hook``, the base class of all its hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from etude_openmm.shared.registries.registry_v1 import Registry

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

HOOKS = Registry("hook", scope="mmcv")

#: The generic method that a stage falls back to when the hook does not override the stage itself.
GENERIC = {
    "before_train_epoch": "before_epoch", "before_val_epoch": "before_epoch",
    "after_train_epoch": "after_epoch", "after_val_epoch": "after_epoch",
    "before_train_iter": "before_iter", "before_val_iter": "before_iter",
    "after_train_iter": "after_iter", "after_val_iter": "after_iter",
}  # fmt: skip


class Hook:
    """Acts at stages of a run, each a method that gets the runner. Override the stages or generic methods you need.

    ``before_epoch`` serves training and validation unless the hook overrides ``before_train_epoch`` or
    ``before_val_epoch``; likewise the others. ``runner.iter`` increases after ``after_train_iter``, ``runner.epoch``
    after ``after_train_epoch``.
    """

    stages: ClassVar[tuple[str, ...]] = (
        "before_run", "before_train_epoch", "before_train_iter", "after_train_iter", "after_train_epoch",
        "before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch", "after_run",
    )  # fmt: skip

    def before_run(self, runner: BaseRunner) -> None: ...
    def after_run(self, runner: BaseRunner) -> None: ...
    def before_epoch(self, runner: BaseRunner) -> None: ...
    def after_epoch(self, runner: BaseRunner) -> None: ...
    def before_iter(self, runner: BaseRunner) -> None: ...
    def after_iter(self, runner: BaseRunner) -> None: ...

    def before_train_epoch(self, runner: BaseRunner) -> None:
        self.before_epoch(runner)

    def before_val_epoch(self, runner: BaseRunner) -> None:
        self.before_epoch(runner)

    def after_train_epoch(self, runner: BaseRunner) -> None:
        self.after_epoch(runner)

    def after_val_epoch(self, runner: BaseRunner) -> None:
        self.after_epoch(runner)

    def before_train_iter(self, runner: BaseRunner) -> None:
        self.before_iter(runner)

    def before_val_iter(self, runner: BaseRunner) -> None:
        self.before_iter(runner)

    def after_train_iter(self, runner: BaseRunner) -> None:
        self.after_iter(runner)

    def after_val_iter(self, runner: BaseRunner) -> None:
        self.after_iter(runner)

    def every_n_epochs(self, runner: BaseRunner, n: int) -> bool:
        return (runner.epoch + 1) % n == 0 if n > 0 else False

    def every_n_inner_iters(self, runner: BaseRunner, n: int) -> bool:
        return (runner.inner_iter + 1) % n == 0 if n > 0 else False

    def every_n_iters(self, runner: BaseRunner, n: int) -> bool:
        return (runner.iter + 1) % n == 0 if n > 0 else False

    def end_of_epoch(self, runner: BaseRunner) -> bool:
        return runner.inner_iter + 1 == len(runner.data_loader)

    def is_last_epoch(self, runner: BaseRunner) -> bool:
        return runner.epoch + 1 == runner._max_epochs

    def is_last_iter(self, runner: BaseRunner) -> bool:
        return runner.iter + 1 == runner._max_iters

    def get_triggered_stages(self) -> list[str]:
        """Return the stages that this hook's class overrides, in the order of a run."""
        return [stage for stage in self.stages if _overrides(type(self), stage)]

    def acts_at(self, stage: str) -> bool:
        """Return whether a call at ``stage`` has any effect, counting methods that were set on the instance."""
        names = {stage, GENERIC.get(stage, stage)}
        return not names.isdisjoint(vars(self)) or _overrides(type(self), stage)

    def method_for(self, stage: str) -> Callable[[Any], Any]:
        """Return the method for ``stage``: the one of that name, or the generic one that it falls back to."""
        own = stage in vars(self) or getattr(type(self), stage) is not getattr(Hook, stage)
        method: Callable[[Any], Any] = getattr(self, stage if own else GENERIC.get(stage, stage))
        return method


def _overrides(hook: type[Hook], stage: str) -> bool:
    return any(getattr(hook, name) is not getattr(Hook, name) for name in {stage, GENERIC.get(stage, stage)})
