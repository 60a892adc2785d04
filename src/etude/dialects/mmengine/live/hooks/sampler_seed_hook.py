"""Tells samplers which epoch begins, so that each epoch has its own order."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.hooks.hook import Hook


class DistSamplerSeedHook(Hook):
    """``set_epoch`` of the sampler, or of the batch sampler's sampler."""

    priority = "NORMAL"

    def before_train_epoch(self, runner: Any) -> None:
        set_epoch(runner.train_loop.dataloader, runner.epoch)


def set_epoch(dataloader: Any, epoch: int) -> None:
    """Tell whichever sampler of ``dataloader`` wants to know that ``epoch`` begins."""
    inner = getattr(getattr(dataloader, "batch_sampler", None), "sampler", None)
    sampler: Any
    for sampler in (getattr(dataloader, "sampler", None), inner):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
            return
