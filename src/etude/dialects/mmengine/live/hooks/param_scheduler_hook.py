"""Moves the parameter schedulers."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.hooks.hook import DataBatch, Hook


class ParamSchedulerHook(Hook):
    """Iteration-based schedulers step after every iteration, epoch-based ones after every epoch.

    Those that want the metrics (plateau) get them after each validation.
    """

    priority = "LOW"

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        for scheduler in _schedulers(runner):
            if not scheduler.by_epoch:
                scheduler.step()

    def after_train_epoch(self, runner: Any) -> None:
        for scheduler in _schedulers(runner):
            if scheduler.by_epoch:
                scheduler.step()

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        if metrics is None:
            return
        for scheduler in _schedulers(runner):
            if scheduler.by_epoch and getattr(scheduler, "need_val_args", False):
                scheduler.step(metrics)


def _schedulers(runner: Any) -> list[Any]:
    """All schedulers that are built, optimizer by optimizer; none when only ``val()`` was asked for."""
    schedulers = runner.param_schedulers
    if schedulers is None:
        return []
    if isinstance(schedulers, list):
        return [scheduler for scheduler in schedulers if hasattr(scheduler, "step")]
    if isinstance(schedulers, dict):
        return [scheduler for one in schedulers.values() for scheduler in one if hasattr(scheduler, "step")]
    raise TypeError(
        "runner.param_schedulers should be list of ParamScheduler or a dict containing list of ParamScheduler, "
        f"but got {type(schedulers).__name__}"
    )
