"""detectron2's hooks: LiBai's with small differences, and those that only detectron2 has."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from etude.checkpoint.formats.background import wait
from etude_libai.lazy.extra import fvcore
from etude_libai.live import topology
from etude_libai.live.detectron.hooks.writers import EventStorage
from etude_libai.live.detectron.schedule import LRMultiplier, is_param_scheduler
from etude_libai.live.detectron.trainer import HookBase
from etude_libai.live.hooks import hooks as shared
from etude_libai.live.hooks import hooks_save
from etude_libai.live.resume.state import moment


def precise_bn() -> Any:
    """Return fvcore's module ``precise_bn``, which recomputes batch norm statistics."""
    return fvcore("nn.precise_bn", "the hook PreciseBN")


class CallbackHook(shared.CallbackHook, HookBase):
    pass


class IterationTimer(shared.IterationTimer, HookBase):
    logger_name = "detectron2.engine.hooks"


class PeriodicWriter(shared.PeriodicWriter, HookBase):
    writes_after_train = True


class EvalHook(shared.EvalHook, HookBase):
    pass


class EarlyStop(shared.EarlyStop, HookBase):
    pass


class LRScheduler(shared.LRScheduler, HookBase):
    """Steps a torch scheduler. One of fvcore's is converted when training begins."""

    def before_train(self) -> None:
        self._optimizer = self._optimizer or self.trainer.optimizer
        if is_param_scheduler(self.scheduler):
            # One less, because torch's scheduler makes a step when it is made.
            self._scheduler = LRMultiplier(
                self._optimizer, self.scheduler, self.trainer.max_iter, last_iter=self.trainer.iter - 1
            )
        self._best_param_group_id = self.get_best_param_group_id(self._optimizer)

    @property
    def scheduler(self) -> Any:
        return self._scheduler or self.trainer.scheduler

    def after_step(self) -> None:
        lr = self._optimizer.param_groups[self._best_param_group_id]["lr"]
        self.trainer.storage.put_scalar("lr", lr, smoothing_hint=False)
        self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        if isinstance(self.scheduler, torch.optim.lr_scheduler.LRScheduler):
            return self.scheduler.state_dict()
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if isinstance(self.scheduler, torch.optim.lr_scheduler.LRScheduler):
            logging.getLogger("detectron2.engine.hooks").info("Loading scheduler from state_dict ...")
            self.scheduler.load_state_dict(dict(state_dict))


class PreciseBN(HookBase):
    """Recomputes batch norm statistics every ``period`` iterations and after the last; register it before saving."""

    def __init__(self, period: int, model: torch.nn.Module, data_loader: Iterable[Any], num_iter: int) -> None:
        self._logger = logging.getLogger("detectron2.engine.hooks")
        self._disabled = not precise_bn().get_bn_modules(model)
        if self._disabled:
            self._logger.info("PreciseBN is disabled because model does not contain BN layers in training mode.")
        self._period, self._model, self._data_loader, self._num_iter = period, model, data_loader, num_iter
        self._data_iter: Any = None

    def after_step(self) -> None:
        following = self.trainer.iter + 1
        last = following == self.trainer.max_iter
        if last or (self._period > 0 and following % self._period == 0):
            self.update_stats()

    def update_stats(self) -> None:
        """Recompute the statistics. A separate storage drops the values that the model records meanwhile."""
        if self._disabled:
            return
        if self._data_iter is None:
            self._data_iter = iter(self._data_loader)
        with EventStorage():
            self._logger.info(f"Running precise-BN for {self._num_iter} iterations...  ")
            precise_bn().update_bn_stats(self._model, itertools.islice(self._data_iter, self._num_iter), self._num_iter)


class PeriodicCheckpointer(hooks_save.PeriodicCheckpointer, HookBase):
    """LiBai's hook for detectron2's trainers."""


class Companion:
    """Replaces the checkpointer on ranks that write no file: it sends their random generators to rank 0."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = weakref.proxy(trainer)

    def save(self, name: str, **kwargs: Any) -> None:
        moment(self.trainer, gather=True)

    def get_checkpoint_file(self) -> str:
        return ""


def together(trainer: Any, checkpointer: Any) -> Any:
    """Return the checkpointer for the ``PeriodicCheckpointer`` of each rank, so that all ranks take part in a save."""
    trainer.saves_together = topology.get_world_size() > 1
    return checkpointer if topology.is_main_process() else Companion(trainer)


class BestCheckpointer(hooks_save.BestCheckpointer, HookBase):
    """Saves the best model with its iteration. A resume still starts from the newest checkpoint."""

    logger_name = "detectron2.engine.hooks"
    missing_message = (
        "Given val metric {metric} does not seem to be computed/stored.Will not be checkpointing based on it."
    )

    def _best_checking(self) -> None:
        """Save without asking other ranks: detectron2's scripts register this hook on rank 0 only."""
        saves = self._decide()
        if saves is not None:
            self._keep(*saves)

    def _save(self, iteration: int) -> None:
        wait()
        last = getattr(self._checkpointer, "get_checkpoint_file", lambda: "")()
        self._checkpointer.save(self._file_prefix, iteration=iteration)
        if isinstance(last, str) and last and not last.endswith(f"{self._file_prefix}.pth"):
            self._checkpointer.tag_last_checkpoint(last.rpartition("/")[2])
