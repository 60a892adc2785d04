"""detectron2's hooks: those of LiBai with their differences, and the ones that only detectron2 has."""

from __future__ import annotations

import itertools
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from etude.dialects.libai.live.detectron.hooks.writers import EventStorage
from etude.dialects.libai.live.detectron.schedule import LRMultiplier, is_param_scheduler
from etude.dialects.libai.live.detectron.trainer import HookBase
from etude.dialects.libai.live.hooks import hooks as shared
from etude.errors import MissingExtra

Predicate = Callable[[Any], bool]


def precise_bn() -> Any:
    """Return fvcore's module of that name, which measures batch norm's statistics anew."""
    try:
        from fvcore.nn import precise_bn
    except ImportError as error:
        raise MissingExtra("fvcore", "detectron2", "the hook PreciseBN") from error
    return precise_bn


class CallbackHook(shared.CallbackHook, HookBase):
    pass


class IterationTimer(shared.IterationTimer, HookBase):
    logger_name = "detectron2.engine.hooks"


class PeriodicWriter(shared.PeriodicWriter, HookBase):
    writes_after_train = True

    def _settle(self) -> None:
        getattr(self.trainer, "settle", lambda: None)()  # one of LiBai's has nothing to wait for


class EvalHook(shared.EvalHook, HookBase):
    pass


class EarlyStop(shared.EarlyStop, HookBase):
    pass


class LRScheduler(shared.LRScheduler, HookBase):
    """Steps a torch scheduler, or one of fvcore's, made into a torch one when training begins."""

    def before_train(self) -> None:
        self._optimizer = self._optimizer or self.trainer.optimizer
        if is_param_scheduler(self.scheduler):
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
    """True batch-norm statistics every ``period`` iterations and at the last; register it before the checkpoints."""

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
        """Nothing that the model records meanwhile counts."""
        if self._disabled:
            return
        if self._data_iter is None:
            self._data_iter = iter(self._data_loader)
        with EventStorage():
            self._logger.info(f"Running precise-BN for {self._num_iter} iterations...  ")
            precise_bn().update_bn_stats(self._model, itertools.islice(self._data_iter, self._num_iter), self._num_iter)


class TorchProfiler(HookBase):
    """Profiles the iterations for which ``enable_predicate(trainer)`` is true."""

    def __init__(
        self, enable_predicate: Predicate, output_dir: str, *, activities: Any = None, save_tensorboard: bool = True
    ) -> None:
        self._enable_predicate, self._output_dir = enable_predicate, output_dir
        self._activities, self._save_tensorboard = activities, save_tensorboard
        self._profiler: Any = None

    def before_step(self) -> None:
        if not self._enable_predicate(self.trainer):
            self._profiler = None
            return
        handler = None
        if self._save_tensorboard:
            folder = os.path.join(self._output_dir, "log", f"profiler-tensorboard-iter{self.trainer.iter}")
            handler = torch.profiler.tensorboard_trace_handler(folder)
        self._profiler = torch.profiler.profile(
            activities=self._activities,
            on_trace_ready=handler,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
        )
        self._profiler.__enter__()

    def after_step(self) -> None:
        if self._profiler is None:
            return
        self._profiler.__exit__(None, None, None)
        if not self._save_tensorboard:
            os.makedirs(self._output_dir, exist_ok=True)
            self._profiler.export_chrome_trace(
                os.path.join(self._output_dir, f"profiler-trace-iter{self.trainer.iter}.json")
            )


class AutogradProfiler(TorchProfiler):
    """The older profiler of torch's autograd; one trace file per profiled iteration."""

    def __init__(self, enable_predicate: Predicate, output_dir: str, *, use_cuda: bool = True) -> None:
        super().__init__(enable_predicate, output_dir)
        self._use_cuda = use_cuda and torch.cuda.is_available()

    def before_step(self) -> None:
        self._profiler = None
        if self._enable_predicate(self.trainer):
            self._profiler = torch.autograd.profiler.profile(use_device="cuda" if self._use_cuda else None)
            self._profiler.__enter__()

    def after_step(self) -> None:
        if self._profiler is None:
            return
        self._profiler.__exit__(None, None, None)
        os.makedirs(self._output_dir, exist_ok=True)
        path = os.path.join(self._output_dir, f"autograd-profiler-trace-iter{self.trainer.iter}.json")
        with tempfile.TemporaryDirectory(prefix="detectron2_profiler") as folder:
            exported = os.path.join(folder, "tmp.json")
            self._profiler.export_chrome_trace(exported)
            with open(exported, encoding="utf-8") as source, open(path, "w", encoding="utf-8") as target:
                json.dump(json.load(source), target)


class TorchMemoryStats(HookBase):
    """Lines about the memory of the CUDA devices, the first ``max_runs`` times; resets the peaks each time."""

    def __init__(self, period: int = 20, max_runs: int = 10) -> None:
        self._logger = logging.getLogger("detectron2.engine.hooks")
        self._period, self._max_runs, self._runs = period, max_runs, 0

    def after_step(self) -> None:
        if self._runs > self._max_runs or not torch.cuda.is_available():
            return
        following = self.trainer.iter + 1
        if following % self._period != 0 and following != self.trainer.max_iter:
            return
        megabyte = 1024.0 * 1024.0
        self._logger.info(
            f" iter: {self.trainer.iter}  max_reserved_mem: {torch.cuda.max_memory_reserved() / megabyte:.0f}MB "
            f" reserved_mem: {torch.cuda.memory_reserved() / megabyte:.0f}MB "
            f" max_allocated_mem: {torch.cuda.max_memory_allocated() / megabyte:.0f}MB "
            f" allocated_mem: {torch.cuda.memory_allocated() / megabyte:.0f}MB  at {time.strftime('%X')}"
        )
        self._runs += 1
        torch.cuda.reset_peak_memory_stats()
