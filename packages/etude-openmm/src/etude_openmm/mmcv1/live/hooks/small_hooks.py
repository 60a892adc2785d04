"""Small mmcv hooks: iteration timer, sampler seeds, synchronised buffers, CUDA cache, closures."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from etude.errors import OutOfScope
from etude_openmm.mmcv1.live.checks import require
from etude_openmm.mmcv1.live.hooks.hook import HOOKS, Hook
from etude_openmm.mmcv1.live.utils.dist import allreduce_params

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

#: The clock of the timer; a test may replace it.
clock: Callable[[], float] = time.time


@HOOKS.register_module()
class IterTimerHook(Hook):
    """Logs ``data_time``, the wait for the batch, and ``time``, the whole iteration."""

    t: float = 0.0

    def before_epoch(self, runner: BaseRunner) -> None:
        self.t = clock()

    def before_iter(self, runner: BaseRunner) -> None:
        runner.log_buffer.update({"data_time": clock() - self.t})

    def after_iter(self, runner: BaseRunner) -> None:
        now = clock()
        runner.log_buffer.update({"time": now - self.t})
        self.t = now


@HOOKS.register_module()
class DistSamplerSeedHook(Hook):
    """Calls ``set_epoch`` of the sampler, or of the batch sampler's sampler, before each epoch."""

    def before_epoch(self, runner: BaseRunner) -> None:
        loader: Any = runner.data_loader
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(runner.epoch)
        elif hasattr(getattr(loader.batch_sampler, "sampler", None), "set_epoch"):
            loader.batch_sampler.sampler.set_epoch(runner.epoch)


@HOOKS.register_module()
class SyncBuffersHook(Hook):
    """Averages all buffers over ranks after each epoch."""

    def __init__(self, distributed: bool = True) -> None:
        self.distributed = distributed

    def after_epoch(self, runner: BaseRunner) -> None:
        if self.distributed:
            allreduce_params(runner.model.buffers())


@HOOKS.register_module()
class EmptyCacheHook(Hook):
    """Calls ``torch.cuda.empty_cache()`` at the chosen stages."""

    def __init__(self, before_epoch: bool = False, after_epoch: bool = True, after_iter: bool = False) -> None:
        self._before_epoch, self._after_epoch, self._after_iter = before_epoch, after_epoch, after_iter

    def after_iter(self, runner: BaseRunner) -> None:
        if self._after_iter:
            torch.cuda.empty_cache()

    def before_epoch(self, runner: BaseRunner) -> None:
        if self._before_epoch:
            torch.cuda.empty_cache()

    def after_epoch(self, runner: BaseRunner) -> None:
        if self._after_epoch:
            torch.cuda.empty_cache()


@HOOKS.register_module()
class ClosureHook(Hook):
    """Calls ``fn(runner)`` at the stage ``fn_name``."""

    def __init__(self, fn_name: str, fn: Callable[[Any], Any]) -> None:
        require(hasattr(self, fn_name), f"no stage is called {fn_name!r}")
        require(callable(fn), f"{fn!r} cannot be called")
        # On the object: get_triggered_stages looks at the class and lists none, as in mmcv.
        setattr(self, fn_name, fn)


@HOOKS.register_module()
class RFSearchHook(Hook):
    """Not supported: the search of receptive fields of convolutions."""

    def __init__(
        self,
        mode: str = "search",
        config: dict[str, Any] = {},  # noqa: B006
        rfstructure_file: str | None = None,
        by_epoch: bool = True,
        verbose: bool = True,
    ) -> None:
        raise OutOfScope("RFSearchHook is out of Étude's scope: search dilations with mmcv and train the result here")
