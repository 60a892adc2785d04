"""Gives unused memory of the GPU back."""

from __future__ import annotations

from typing import Any

import torch

from etude.dialects.mmengine.live.hooks.hook import DataBatch, Hook


class EmptyCacheHook(Hook):
    """``torch.cuda.empty_cache()`` before or after epochs, or after iterations."""

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
