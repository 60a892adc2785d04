"""Hooks of mmtracking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from etude.dialects.mmcv1.live.checks import ConfigValueError, require
from etude.dialects.mmcv1.live.hooks import evaluation
from etude.dialects.mmcv1.live.hooks.hook import HOOKS
from etude.dialects.mmcv1.live.hooks.lr_updater import LrUpdaterHook
from etude.dialects.mmcv1.live.mmtrack import testing

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


class _EveryScore(evaluation.EvalHook):
    """A score of 0 counts here, as mmtracking has it."""

    def _take(self, runner: BaseRunner, results: Any) -> None:
        runner.log_buffer.output["eval_iter_num"] = len(self.dataloader)
        score = self.evaluate(runner, results)
        if self.save_best and score is not None:
            self._save_ckpt(runner, score)


class EvalHook(_EveryScore):
    """Evaluation in one process."""

    usual_test = staticmethod(testing.single_gpu_test)


class DistEvalHook(_EveryScore, evaluation.DistEvalHook):
    """Evaluation over all ranks."""

    usual_test = staticmethod(testing.multi_gpu_test)


@HOOKS.register_module()
class SiameseRPNLrUpdaterHook(LrUpdaterHook):
    """Segments of epochs with a learning rate factor each: ``step`` (geometric) or ``log`` (evenly in logarithms)."""

    def __init__(self, lr_configs: Sequence[dict[str, Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require(self.by_epoch, "the SiameseRPN policy counts epochs: by_epoch must be True")
        self.lr_configs = [dict(segment) for segment in lr_configs]
        self.factors = [factor for segment in self.lr_configs for factor in _factors(segment)]

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        if runner.epoch >= len(self.factors):
            raise ConfigValueError(f"the segments of lr_configs end at epoch {len(self.factors)}")
        return float(base_lr * self.factors[runner.epoch])


def _factors(segment: dict[str, Any]) -> list[float]:
    kind, first, last = segment["type"], segment["start_lr_factor"], segment["end_lr_factor"]
    count = segment["end_epoch"] - segment["start_epoch"]
    if kind == "step":
        ratio = (last / first) ** (1.0 / (count - 1)) if count > 1 else 1.0
        return [float(first * ratio**number) for number in range(count)]
    if kind == "log":
        return [float(value) for value in np.logspace(np.log10(first), np.log10(last), count)]
    raise ConfigValueError(f"a segment has the type 'step' or 'log', got {kind!r}")
