"""LiBai's hooks: timer, learning rate, writers, evaluation, early stopping."""

from __future__ import annotations

import datetime
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from etude.checkpoint.formats import background, folders
from etude_libai.files import PeriodicCheckpointer
from etude_libai.live import distributed as dist
from etude_libai.live.evaluation.run import flatten_results_dict
from etude_libai.live.events.history import Timer
from etude_libai.live.events.storage import get_event_storage, has_event_storage
from etude_libai.live.events.writers import EventWriter
from etude_libai.live.trainer import HookBase

Callback = Callable[[Any], Any]


class CallbackHook(HookBase):
    """Calls plain functions with the trainer."""

    def __init__(
        self,
        *,
        before_train: Callback | None = None,
        after_train: Callback | None = None,
        before_step: Callback | None = None,
        after_step: Callback | None = None,
    ) -> None:
        self._before_train, self._after_train = before_train, after_train
        self._before_step, self._after_step = before_step, after_step

    def before_train(self) -> None:
        if self._before_train:
            self._before_train(self.trainer)

    def after_train(self) -> None:
        if self._after_train:
            self._after_train(self.trainer)
        # The functions may refer to the trainer, which would not be freed then.
        del self._before_train, self._after_train, self._before_step, self._after_step

    def before_step(self) -> None:
        if self._before_step:
            self._before_step(self.trainer)

    def after_step(self) -> None:
        if self._after_step:
            self._after_step(self.trainer)


class IterationTimer(HookBase):
    """Records ``time`` per iteration after a warm-up, and logs the total times at the end."""

    logger_name = "libai.engine.hooks"

    def __init__(self, warmup_iter: int = 3) -> None:
        self._warmup_iter = warmup_iter
        self._step_timer = Timer()
        self._start_time = time.perf_counter()
        self._total_timer = Timer()

    def before_train(self) -> None:
        self._start_time = time.perf_counter()
        self._total_timer.reset()
        self._total_timer.pause()

    def after_train(self) -> None:
        logger = logging.getLogger(self.logger_name)
        total = time.perf_counter() - self._start_time
        stepping = self._total_timer.seconds()
        timed = self.trainer.iter + 1 - self.trainer.start_iter - self._warmup_iter
        if timed > 0 and stepping > 0:
            logger.info(
                f"Overall training speed: {timed} iterations in {_shown(stepping)} ({stepping / timed:.4f} s / it)"
            )
        logger.info(f"Total training time: {_shown(total)} ({_shown(total - stepping)} on hooks)")

    def before_step(self) -> None:
        self._step_timer.reset()
        self._total_timer.resume()

    def after_step(self) -> None:
        done = self.trainer.iter - self.trainer.start_iter + 1
        if done >= self._warmup_iter:
            self.trainer.storage.put_scalars(time=self._step_timer.seconds())
        else:
            self._start_time = time.perf_counter()
            self._total_timer.reset()
        self._total_timer.pause()


class PeriodicWriter(HookBase):
    """Calls the writers every ``period`` iterations and after the last one, and closes them at the end."""

    #: Whether values recorded after the last iteration (the final evaluation) are written before closing: not in LiBai,
    #: which only closes its writers.
    writes_after_train = False
    remembers = finishes_step = True
    _warned = False

    def __init__(self, writers: Sequence[EventWriter], period: int = 20) -> None:
        self._writers = writers
        for writer in writers:
            assert isinstance(writer, EventWriter), writer
        self._period = period
        self._restored: Mapping[str, Any] = {}

    def after_step(self) -> None:
        if (self.trainer.iter + 1) % self._period == 0 or self.trainer.iter == self.trainer.max_iter - 1:
            self.trainer.settle()
            for writer in self._writers:
                writer.write()
            if not self._warned and (warning := _divergence(self.trainer)) is not None:
                self._warned = True
                logging.getLogger("libai.utils.events").warning(warning)

    def after_train(self) -> None:
        self.trainer.settle()
        for writer in self._writers:
            if self.writes_after_train:
                writer.write()
            writer.close()

    def write_to(self, writers: Sequence[EventWriter]) -> None:
        """Use these writers, and restore their positions from the resumed checkpoint."""
        self._writers = writers
        self.load_state_dict(self._restored)

    def state_dict(self) -> dict[str, Any]:
        """Return the positions of the writers, so that a resumed run writes nothing twice."""
        return {"writers": [w.state_dict() if hasattr(w, "state_dict") else {} for w in self._writers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._restored = state
        for writer, own in zip(self._writers, state.get("writers", ()), strict=False):
            restore = getattr(writer, "load_state_dict", None)
            if own and restore is not None:
                restore(own)


class EvalHook(HookBase):
    """Calls a function every ``period`` iterations and after training, and records the numbers that it returns."""

    finishes_step = True

    def __init__(self, eval_period: int, eval_function: Callable[[], Any], eval_after_train: bool = True) -> None:
        self._period, self._func, self._eval_after_train = eval_period, eval_function, eval_after_train

    def _do_eval(self) -> None:
        results = self._func()
        if results:
            assert isinstance(results, Mapping), f"Eval function must return a dict. Got {results} instead."
            flat = flatten_results_dict(results)
            for name, value in flat.items():
                try:
                    flat[name] = float(value)
                except Exception as error:
                    raise ValueError(
                        f"[EvalHook] eval_function should return a nested dict of float. Got '{name}: {value}' instead."
                    ) from error
            self.trainer.storage.put_scalars(**flat, smoothing_hint=False)
        dist.synchronize()

    def after_step(self) -> None:
        following = self.trainer.iter + 1
        # The last iteration is evaluated in after_train.
        if self._period > 0 and following % self._period == 0 and following != self.trainer.max_iter:
            self._do_eval()

    def after_train(self) -> None:
        if self._eval_after_train and self.trainer.iter + 1 >= self.trainer.max_iter and not failed(self.trainer):
            self._do_eval()
        # The function probably refers to the trainer, which would not be freed then.
        del self._func


class LRScheduler(HookBase):
    """Records the learning rate of this iteration, then steps the scheduler."""

    def __init__(self, optimizer: Any = None, scheduler: Any = None) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler

    def before_train(self) -> None:
        self._optimizer = self._optimizer or self.trainer.optimizer
        self._scheduler = self._scheduler or self.trainer.lr_scheduler
        self._best_param_group_id = self.get_best_param_group_id(self._optimizer)

    @property
    def scheduler(self) -> Any:
        return self._scheduler or self.trainer.lr_scheduler

    @staticmethod
    def get_best_param_group_id(optimizer: Any) -> int:
        """Return the group whose lr is shown: the largest, or one with the most common lr if all have one parameter."""
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        if max(sizes) > 1:
            return sizes.index(max(sizes))
        rates = [group["lr"] for group in optimizer.param_groups]
        return rates.index(Counter(rates).most_common(1)[0][0])

    def after_step(self) -> None:
        lr = self._scheduler.get_last_lr()[self._best_param_group_id]
        self.trainer.storage.put_scalar("lr", lr, smoothing_hint=False)
        self._scheduler.step()


class EarlyStop(HookBase):
    """Stops training if a metric has not improved for ``patience`` evaluations.

    Neither LiBai nor detectron2 has this; register it after the ``EvalHook``.
    """

    remembers = finishes_step = True

    def __init__(self, val_metric: str, mode: str = "max", patience: int = 3, min_delta: float = 0.0) -> None:
        assert mode in ("max", "min"), f"Mode \"{mode}\" is unknown. It should be one of ('max', 'min')."
        self.val_metric, self.mode, self.patience, self.min_delta = val_metric, mode, patience, min_delta
        self.best: float | None = None
        self.waited, self._seen = 0, -1

    def after_step(self) -> None:
        latest = self.trainer.storage.latest().get(self.val_metric)
        if latest is None or latest[1] == self._seen:
            return
        value, self._seen = latest
        if self._better(value):
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.trainer.stop(f"{self.val_metric} did not improve in {self.waited} evaluations (best {self.best})")

    def _better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self.mode == "max" else self.best - value
        return gain > self.min_delta

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.waited, self._seen = state["best"], state["waited"], state["seen"]


def failed(trainer: Any) -> bool:
    """Return whether an exception ended training: then nothing is evaluated or saved as the best."""
    return getattr(getattr(trainer, "engine", None), "error", None) is not None


def _shown(seconds: float) -> str:
    return str(datetime.timedelta(seconds=int(seconds)))


def _divergence(trainer: Any) -> str | None:
    """Return a warning if the newest losses are not finite, else None.

    LiBai continues to train, and newer checkpoints replace the good ones.
    """
    histories = get_event_storage().histories() if has_event_storage() else {}
    for name, history in histories.items():
        if "loss" in name and not math.isfinite(history.latest()):
            lost = list(takewhile(lambda one: not math.isfinite(one[0]), reversed(history.values())))
            began = int(lost[-1][1])
            return (
                f"{name} is {history.latest()}, since iteration {began}. LiBai trains on all the same and saves what "
                f"comes of it. {_way_back(getattr(trainer, '_hooks', ()), began)}"
            )
    return None


def _way_back(hooks: Iterable[Any], began: int) -> str:
    hook = next((hook for hook in hooks if isinstance(hook, PeriodicCheckpointer)), None)
    folder = getattr(hook.checkpointer, "save_dir", "") if hook is not None else ""
    background.wait()
    found = folders.checkpoints(folder) if folder and os.path.isdir(folder) else []
    older = [one for one in found if one.periodic and one.step <= began]
    if hook is None or not older:
        return "There is no checkpoint from before. Ctrl-C stops the run"
    kept = f", which max_to_keep={hook.max_to_keep} will remove" if hook.max_to_keep else ""
    path = os.path.join(folder, older[-1].name)
    return (
        f"The newest checkpoint from before is {path}{kept}: stop the run with Ctrl-C, and resume from there with "
        f"--resume {path}"
    )
