"""Averages buffers (the statistics of BatchNorm) over all processes."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.dist.collectives import all_reduce_params
from etude.dialects.mmengine.live.dist.utils import is_distributed
from etude.dialects.mmengine.live.hooks.hook import Hook


class SyncBuffersHook(Hook):
    """After each training epoch, and before a validation that comes in the middle of one."""

    priority = "NORMAL"

    def __init__(self) -> None:
        self.distributed = is_distributed()
        # An iteration loop validates before its one epoch is over; then the buffers have not been united yet.
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
