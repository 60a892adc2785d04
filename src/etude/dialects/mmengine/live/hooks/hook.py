"""The base class of every hook that MMEngine's users write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Said of an argument that still works.
OUTDATED = '"file_client_args" will be deprecated in future; use "backend_args"'

DataBatch = Any

_EPOCH_FALLBACKS = {"_before_epoch": "before_{}_epoch", "_after_epoch": "after_{}_epoch"}
_ITER_FALLBACKS = {"_before_iter": "before_{}_iter", "_after_iter": "after_{}_iter"}
_FALLBACKS = {**_EPOCH_FALLBACKS, **_ITER_FALLBACKS}
_MODES = ("train", "val", "test")


class Hook:
    """Twenty-two points of a run, each a method that does nothing until a subclass overrides it.

    The points of epochs and iterations fall back on ``_before_epoch``, ``_after_epoch``, ``_before_iter`` and
    ``_after_iter``, which learn the mode. ``runner.epoch`` and ``runner.iter`` count from 0 and move on after the
    matching ``after_*`` point. A point that no hook overrides costs a run nothing.
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
        """Everything is built, nothing has been loaded."""

    def after_run(self, runner: Any) -> None:
        """The last point of ``train()``, ``val()`` and ``test()``."""

    def before_train(self, runner: Any) -> None:
        """Weights and counters are loaded, the first epoch has not begun."""

    def after_train(self, runner: Any) -> None:
        """The last epoch and its validation are over."""

    def before_val(self, runner: Any) -> None:
        """A validation begins."""

    def after_val(self, runner: Any) -> None:
        """A validation is over."""

    def before_test(self, runner: Any) -> None:
        """Testing begins."""

    def after_test(self, runner: Any) -> None:
        """Testing is over."""

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """``checkpoint`` is about to be written; what is added to it is saved."""

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """``checkpoint`` was read; changes to it happen before anything is loaded from it."""

    def before_train_epoch(self, runner: Any) -> None:
        """An epoch begins; in an iteration loop, once for the whole run."""
        self._before_epoch(runner, mode="train")

    def before_val_epoch(self, runner: Any) -> None:
        """The pass over the validation data begins."""
        self._before_epoch(runner, mode="val")

    def before_test_epoch(self, runner: Any) -> None:
        """The pass over the test data begins."""
        self._before_epoch(runner, mode="test")

    def after_train_epoch(self, runner: Any) -> None:
        """An epoch is over; ``runner.epoch`` still is its number."""
        self._after_epoch(runner, mode="train")

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """The pass over the validation data is over; ``runner.epoch`` is the number of finished epochs."""
        self._after_epoch(runner, mode="val")

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """The pass over the test data is over."""
        self._after_epoch(runner, mode="test")

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        """A batch is there, the model has not seen it."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="train")

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        """A validation batch is there."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="val")

    def before_test_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        """A test batch is there."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="test")

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        """The parameters have moved; ``outputs`` is what ``train_step`` returned."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="train")

    def after_val_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """``outputs`` is what ``val_step`` returned."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="val")

    def after_test_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """``outputs`` is what ``test_step`` returned."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="test")

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        """Act at all three ``before_*_epoch`` that are not overridden."""

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        """Act at all three ``after_*_epoch`` that are not overridden."""

    def _before_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None, mode: str = "train") -> None:
        """Act at all three ``before_*_iter`` that are not overridden."""

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        """Act at all three ``after_*_iter`` that are not overridden."""

    # -- questions that hooks ask; they count from 1 -------------------------------------------------------------

    def every_n_epochs(self, runner: Any, n: int, start: int = 0) -> bool:
        """Return whether this epoch is the n-th, counted from epoch ``start``."""
        return _nth(int(runner.epoch) + 1 - start, n)

    def every_n_inner_iters(self, batch_idx: int, n: int) -> bool:
        """Return whether this batch of the epoch is an n-th one."""
        return (batch_idx + 1) % n == 0 if n > 0 else False

    def every_n_train_iters(self, runner: Any, n: int, start: int = 0) -> bool:
        """Return whether this iteration is the n-th, counted from iteration ``start``."""
        return _nth(int(runner.iter) + 1 - start, n)

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
        active = {stage for stage in Hook.stages if overrides(self, stage)}
        for fallback, form in _FALLBACKS.items():
            if overrides(self, fallback):
                active.update(form.format(mode) for mode in _MODES)
        return [stage for stage in Hook.stages if stage in active]


def _nth(count: int, n: int) -> bool:
    return count >= 0 and count % n == 0 if n > 0 else False


def overrides(hook: Any, name: str) -> bool:
    """Return whether ``hook`` has its own method ``name``: in its class or set on the object."""
    return name in getattr(hook, "__dict__", ()) or getattr(type(hook), name, None) is not getattr(Hook, name, None)


def acts_at(hook: Any, point: str) -> bool:
    """Return whether calling ``point`` on ``hook`` can have any effect; always true for points that are not ours."""
    if not hasattr(hook, point):
        return False
    if not isinstance(hook, Hook) or point not in Hook.stages or overrides(hook, point):
        return True
    moment, _, rest = point.partition("_")
    return rest.endswith(("_epoch", "_iter")) and overrides(hook, f"_{moment}_{rest.rpartition('_')[2]}")
