"""Small MMEngine hooks: iteration timer, sampler seeds, CUDA cache, synchronised buffers, schedulers."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch

from etude_openmm.mmengine.live.dist.collectives import all_reduce_params
from etude_openmm.mmengine.live.dist.utils import is_distributed
from etude_openmm.mmengine.live.hooks.hook import DataBatch, Hook
from etude_openmm.shared.errors import ConfigKeyError
from etude_openmm.shared.metric_rules import missing_result


class IterTimerHook(Hook):
    """Measures the scalars ``<mode>/data_time`` and ``<mode>/time``, and the info ``eta``, in seconds."""

    priority = "NORMAL"

    def __init__(self) -> None:
        self.time_sec_tot = 0.0
        self.time_sec_test_val = 0.0
        self.start_iter = 0
        self.t = time.time()

    def before_train(self, runner: Any) -> None:
        self.start_iter = runner.iter
        self.time_sec_tot = 0.0

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        self.t = time.time()

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        self.time_sec_test_val = 0.0

    def _before_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None, mode: str = "train") -> None:
        runner.message_hub.update_scalar(f"{mode}/data_time", time.time() - self.t)

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        now = time.time()
        spent, self.t = now - self.t, now
        hub = runner.message_hub
        hub.update_scalar(f"{mode}/time", spent)
        if mode == "train":
            done = runner.iter + 1
            self.time_sec_tot += spent
            eta = self.time_sec_tot / (done - self.start_iter) * (runner.max_iters - done)
        else:
            loader = runner.val_dataloader if mode == "val" else runner.test_dataloader
            self.time_sec_test_val += spent
            eta = self.time_sec_test_val / (batch_idx + 1) * (len(loader) - batch_idx - 1)
        hub.update_info("eta", eta)


class DistSamplerSeedHook(Hook):
    """Calls ``set_epoch`` of the sampler, or of the batch sampler's sampler, before each epoch."""

    priority = "NORMAL"

    def before_train_epoch(self, runner: Any) -> None:
        set_epoch(runner.train_loop.dataloader, runner.epoch)


def set_epoch(dataloader: Any, epoch: int) -> None:
    """Call ``set_epoch`` of the first sampler of ``dataloader`` that has it."""
    inner = getattr(getattr(dataloader, "batch_sampler", None), "sampler", None)
    sampler: Any
    for sampler in (getattr(dataloader, "sampler", None), inner):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
            return


def length_of(loader: Any) -> int | None:
    """Return the number of batches; None for a dataset without a length."""
    try:
        return len(loader)
    except TypeError:
        return None


class EmptyCacheHook(Hook):
    """Calls ``torch.cuda.empty_cache()`` before or after epochs, or after iterations."""

    priority = "NORMAL"

    def __init__(self, before_epoch: bool = False, after_epoch: bool = True, after_iter: bool = False) -> None:
        self._do_before_epoch = before_epoch
        self._do_after_epoch = after_epoch
        self._do_after_iter = after_iter

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        if self._do_after_iter:
            torch.cuda.empty_cache()

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        if self._do_before_epoch:
            torch.cuda.empty_cache()

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        if self._do_after_epoch:
            torch.cuda.empty_cache()


class SyncBuffersHook(Hook):
    """Averages buffers over processes after each training epoch, and before a validation in the middle of one."""

    priority = "NORMAL"

    def __init__(self) -> None:
        self.distributed = is_distributed()
        # An iteration loop validates before its one epoch is over: the buffers have not been averaged yet.
        self.called_in_train = False

    def before_val_epoch(self, runner: Any) -> None:
        if self.distributed:
            if not self.called_in_train:
                all_reduce_params(runner.model.buffers(), op="mean")
            self.called_in_train = False

    def after_train_epoch(self, runner: Any) -> None:
        if self.distributed:
            all_reduce_params(runner.model.buffers(), op="mean")
            self.called_in_train = True


class ParamSchedulerHook(Hook):
    """Steps the schedulers: iteration-based ones after every iteration, epoch-based ones after every epoch.

    Schedulers that need metrics (plateau) get them after each validation.
    """

    priority = "LOW"

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        for scheduler in _schedulers(runner):
            if not scheduler.by_epoch:
                _step(scheduler)

    def after_train_epoch(self, runner: Any) -> None:
        for scheduler in _schedulers(runner):
            if scheduler.by_epoch:
                _step(scheduler)

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        if metrics is None:
            return
        for scheduler in _schedulers(runner):
            if scheduler.by_epoch and getattr(scheduler, "need_val_args", False):
                monitor = getattr(scheduler, "monitor", None)
                if monitor is not None and monitor not in metrics:
                    text, hint = missing_result(f"monitor of {type(scheduler).__name__}", monitor, metrics)
                    raise ConfigKeyError(text, hint=hint)
                scheduler.step(metrics)


def _step(scheduler: Any) -> None:
    """Step a scheduler, without its warning where the optimizer's first step comes later, after accumulation."""
    waits = getattr(scheduler.optimizer, "_accumulative_counts", 1) > 1
    if not waits or getattr(scheduler, "_global_step", 1) != 0:
        scheduler.step()
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `scheduler.step", UserWarning)
        scheduler.step()


def _schedulers(runner: Any) -> list[Any]:
    """Return all schedulers that are built, optimizer by optimizer; none if only ``val()`` runs."""
    schedulers = runner.param_schedulers
    if not isinstance(schedulers, list | dict | None):
        raise TypeError(
            "runner.param_schedulers should be list of ParamScheduler or a dict containing list of ParamScheduler, "
            f"but got {type(schedulers).__name__}"
        )
    lists = schedulers.values() if isinstance(schedulers, dict) else [schedulers or []]
    return [scheduler for one in lists for scheduler in one if hasattr(scheduler, "step")]
