"""MMEngine's ``Hook``, the base class of all its hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: The warning about an outdated argument that still works.
OUTDATED = '"file_client_args" will be deprecated in future; use "backend_args"'

DataBatch = Any


class Hook:
    """Acts at points of a run. Each of the 22 points is a method that does nothing until a subclass overrides it.

    The points of epochs and iterations fall back on ``_before_epoch``, ``_after_epoch``, ``_before_iter`` and
    ``_after_iter``, which get the mode. ``runner.epoch`` and ``runner.iter`` count from 0 and increase after the
    matching ``after_*`` point. A point that no hook overrides costs nothing.
    """

    priority: int | str = "NORMAL"
    stages = (
        "before_run", "after_load_checkpoint",
        "before_train", "before_train_epoch", "before_train_iter", "after_train_iter", "after_train_epoch",
        "before_val", "before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch", "after_val",
        "before_save_checkpoint", "after_train",
        "before_test", "before_test_epoch", "before_test_iter", "after_test_iter", "after_test_epoch", "after_test",
        "after_run",
    )  # fmt: skip

    def before_run(self, runner: Any) -> None:
        """Act once everything is built, before any checkpoint is loaded."""

    def after_run(self, runner: Any) -> None:
        """Act at the very end of ``train()``, ``val()`` and ``test()``."""

    def before_train(self, runner: Any) -> None:
        """Act before the first epoch, with weights and counters loaded."""

    def after_train(self, runner: Any) -> None:
        """Act after the last epoch and its validation."""

    def before_val(self, runner: Any) -> None:
        """Act before a validation."""

    def after_val(self, runner: Any) -> None:
        """Act after a validation."""

    def before_test(self, runner: Any) -> None:
        """Act before testing."""

    def after_test(self, runner: Any) -> None:
        """Act after testing."""

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """Act before ``checkpoint`` is written. Entries added to it here are saved."""

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """Act after ``checkpoint`` is read and before anything is loaded from it. Changes to it take effect."""

    def before_train_epoch(self, runner: Any) -> None:
        """Act before an epoch; in an iteration loop, once for the whole run."""
        self._before_epoch(runner, mode="train")

    def before_val_epoch(self, runner: Any) -> None:
        """Act before the pass over the validation data."""
        self._before_epoch(runner, mode="val")

    def before_test_epoch(self, runner: Any) -> None:
        """Act before the pass over the test data."""
        self._before_epoch(runner, mode="test")

    def after_train_epoch(self, runner: Any) -> None:
        """Act after an epoch; ``runner.epoch`` is still its number."""
        self._after_epoch(runner, mode="train")

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Act after the pass over the validation data; ``runner.epoch`` is the number of finished epochs."""
        self._after_epoch(runner, mode="val")

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Act after the pass over the test data."""
        self._after_epoch(runner, mode="test")

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        """Act on a batch before the model gets it."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="train")

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        """Act on a validation batch before the model gets it."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="val")

    def before_test_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        """Act on a test batch before the model gets it."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="test")

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        """Act after the update; ``outputs`` is what ``train_step`` returned."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="train")

    def after_val_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """Act after a validation batch; ``outputs`` is what ``val_step`` returned."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="val")

    def after_test_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """Act after a test batch; ``outputs`` is what ``test_step`` returned."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="test")

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        """Act at those of the three ``before_*_epoch`` that are not overridden."""

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        """Act at those of the three ``after_*_epoch`` that are not overridden."""

    def _before_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None, mode: str = "train") -> None:
        """Act at those of the three ``before_*_iter`` that are not overridden."""

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        """Act at those of the three ``after_*_iter`` that are not overridden."""

    # -- helpers for hooks; they count from 1 --------------------------------------------------------------------

    def every_n_epochs(self, runner: Any, n: int, start: int = 0) -> bool:
        """Return whether this is an n-th epoch, counted from epoch ``start``."""
        return _is_nth(int(runner.epoch) + 1 - start, n)

    def every_n_inner_iters(self, batch_idx: int, n: int) -> bool:
        """Return whether this is an n-th batch of the epoch."""
        return (batch_idx + 1) % n == 0 if n > 0 else False

    def every_n_train_iters(self, runner: Any, n: int, start: int = 0) -> bool:
        """Return whether this is an n-th iteration, counted from iteration ``start``."""
        return _is_nth(int(runner.iter) + 1 - start, n)

    def end_of_epoch(self, dataloader: Any, batch_idx: int) -> bool:
        """Return whether this batch is the last one of ``dataloader``."""
        return bool(batch_idx + 1 == len(dataloader))

    def is_last_train_epoch(self, runner: Any) -> bool:
        """Return whether this is the last epoch."""
        return bool(runner.epoch + 1 == runner.max_epochs)

    def is_last_train_iter(self, runner: Any) -> bool:
        """Return whether this is the last iteration."""
        return bool(runner.iter + 1 == runner.max_iters)

    def get_triggered_stages(self) -> list[str]:
        """Return the points at which this hook does something, in the order of :attr:`stages`."""
        return [stage for stage in Hook.stages if acts_at(self, stage)]


def _is_nth(count: int, n: int) -> bool:
    # 0 counts: with a ``start``, that very epoch or iteration is the first one.
    return count >= 0 and count % n == 0 if n > 0 else False


def overrides(hook: Any, name: str) -> bool:
    """Return whether ``hook`` has its own method ``name``: in its class or set on the object."""
    return name in getattr(hook, "__dict__", ()) or getattr(type(hook), name, None) is not getattr(Hook, name, None)


def acts_at(hook: Any, point: str) -> bool:
    """Return whether calling ``point`` on ``hook`` can have any effect; always true for points that users invented."""
    if not hasattr(hook, point):
        return False
    if not isinstance(hook, Hook) or point not in Hook.stages or overrides(hook, point):
        return True
    moment, _, rest = point.partition("_")
    return rest.endswith(("_epoch", "_iter")) and overrides(hook, f"_{moment}_{rest.rpartition('_')[2]}")
