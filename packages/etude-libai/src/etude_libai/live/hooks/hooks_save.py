"""LiBai's hooks that save checkpoints: periodically, and whenever an evaluation is the best so far."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from etude.checkpoint.formats.background import all_ours
from etude.checkpoint.formats.torch_file import Patience
from etude.errors import SaveError
from etude.errors.spelling import nearest
from etude_libai import files
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.hooks.hooks import failed
from etude_libai.live.trainer import HookBase


class PeriodicCheckpointer(files.PeriodicCheckpointer, HookBase):
    """:class:`etude_libai.files.PeriodicCheckpointer` as a hook."""

    remembers = True

    def before_train(self) -> None:
        self.max_iter = self.trainer.max_iter

    def after_step(self) -> None:
        self.step(self.trainer.iter)

    def _may_defer(self) -> bool:
        return all_ours([self.checkpointer]) and self.trainer.all_is_ours()

    def _finish_step(self) -> None:
        self.step_final(self.trainer.iter)


class BestCheckpointer(HookBase):
    """Saves the model whenever ``val_metric`` is strictly better than before. Register it after the ``EvalHook``."""

    remembers = finishes_step = True
    #: Whether a warning about a missing metric was logged.
    reported = False
    logger_name = "libai.engine.hooks"
    missing_message = (
        "Given val metric {metric} does not seem to be computed/stored. Will not be checkpointed based on that."
    )

    def __init__(
        self,
        eval_period: int,
        checkpointer: Any,
        val_metric: str,
        mode: str = "max",
        file_prefix: str = "model_best",
    ) -> None:
        assert mode in ("max", "min"), (
            f"Mode \"{mode}\" to `BestCheckpointer` is unknown. It should be one of ('max', 'min')."
        )
        self._logger = logging.getLogger(self.logger_name)
        self._period, self._val_metric, self._checkpointer = eval_period, val_metric, checkpointer
        self._compare = operator.gt if mode == "max" else operator.lt
        self._file_prefix = file_prefix
        self.best_metric: float | None = None
        self.best_iter: int | None = None
        self._patience = Patience()

    def _best_checking(self) -> None:
        saves = dist.broadcast_py_object(self._decide() if topology.is_main_process() else None)
        if saves is not None:
            self._keep(*saves)

    def _keep(self, message: str, value: float, iteration: int) -> None:
        self._logger.info(message)
        try:
            self._save(iteration)
        except SaveError as error:
            self._patience.forgive(error, self._logger.error)
            return
        self._patience.renew()
        # As in detectron2, an infinite value is saved as the best, but the next one is not compared with it.
        self._update_best(value, iteration)

    def _update_best(self, val: float, iteration: int) -> bool:
        """Remember a new best value, unless it is NaN or infinite. Return whether it was remembered."""
        if math.isnan(val) or math.isinf(val):
            return False
        self.best_metric, self.best_iter = val, iteration
        return True

    def _decide(self) -> tuple[str, float, int] | None:
        """Return a message, the value and its iteration if the latest value is the best; else log the reason."""
        latest = self.trainer.storage.latest().get(self._val_metric)
        if latest is None:
            self._logger.warning(self.missing_message.format(metric=self._val_metric))
            return None
        value, iteration = latest
        if self.best_metric is None:
            if math.isnan(value) or math.isinf(value):
                return None
            return f"Saved first model at {value:0.5f} @ {iteration} steps", value, iteration
        if self._compare(value, self.best_metric):
            return (
                f"Saved best model as latest eval score for {self._val_metric} is {value:0.5f}, better than last best "
                f"score {self.best_metric:0.5f} @ iteration {self.best_iter}.",
                value,
                iteration,
            )
        self._logger.info(
            f"Not saving as latest eval score for {self._val_metric} is {value:0.5f}, not better than best score "
            f"{self.best_metric:0.5f} @ iteration {self.best_iter}."
        )
        return None

    def _save(self, iteration: int) -> None:
        self._checkpointer.save(self._file_prefix)

    def after_step(self) -> None:
        following = self.trainer.iter + 1
        if self._period > 0 and following % self._period == 0 and following != self.trainer.max_iter:
            self._best_checking()

    def after_train(self) -> None:
        if self.trainer.iter + 1 >= self.trainer.max_iter and not failed(self.trainer):
            self._best_checking()

    def state_dict(self) -> dict[str, Any]:
        return {"best_metric": self.best_metric, "best_iter": self.best_iter}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best_metric, self.best_iter = state["best_metric"], state["best_iter"]


def report_missing(trainer: Any, names: Sequence[str]) -> None:
    """Warn once that no best model will be saved, if an evaluation has no result of the metric's name."""
    storage = getattr(trainer, "storage", None)
    best = next((hook for hook in trainer._hooks if isinstance(hook, BestCheckpointer)), None)
    if storage is None or best is None or best.reported or not names or not topology.is_main_process():
        return
    wanted = best._val_metric
    if wanted in names or wanted in storage.latest():
        return
    best.reported = True
    inside = [name for name in names if name.rpartition("/")[2] == wanted]
    near = inside[0] if inside else nearest(wanted, names)
    said = f"train.evaluation.eval_metric is {wanted!r}, and an evaluation gives {', '.join(names)}"
    hint = f"; did you mean {near!r}?" if near else ""
    logging.getLogger(best.logger_name).warning(f"{said}: no model_best will be saved{hint}")
