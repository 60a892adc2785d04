"""Hooks that the training function of MMClassification registers by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etude.dialects.mmcv1.live.hooks import evaluation
from etude.dialects.mmcv1.live.hooks.hook import HOOKS
from etude.dialects.mmcv1.live.hooks.optimizer_hook import OptimizerHook, loss_of
from etude.dialects.mmcv1.live.projects.data import BaseDataset, check_metrics

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


class EvalHook(evaluation.EvalHook):
    """MMClassification's evaluation in one process."""

    def _check_arguments(self, runner: BaseRunner, dataset: Any) -> None:
        """As far as mmclassification's own ``evaluate`` is asked, its metrics are known before training too."""
        super()._check_arguments(runner, dataset)
        metric = self.eval_kwargs.get("metric", "accuracy")
        if getattr(type(dataset), "evaluate", None) is not BaseDataset.evaluate:
            return
        names = [metric] if isinstance(metric, str) else list(metric)
        check_metrics(names, at=evaluation.place_of(runner, "metric"))
        if self.key_indicator == "auto" and names:
            self.require_rule(runner, names[0])


class DistEvalHook(EvalHook, evaluation.DistEvalHook):
    """MMClassification's evaluation over all ranks."""


@HOOKS.register_module()
class DistOptimizerHook(OptimizerHook):
    """What a distributed run uses by default: clips without logging the norm."""

    def __init__(
        self, grad_clip: dict[str, Any] | None = None, coalesce: bool = True, bucket_size_mb: int = -1
    ) -> None:
        super().__init__(grad_clip)
        self.coalesce, self.bucket_size_mb = coalesce, bucket_size_mb

    def after_train_iter(self, runner: BaseRunner) -> None:
        runner.optimizer.zero_grad()
        loss_of(runner).backward()
        if self.grad_clip is not None:
            self.clip_grads(runner.model.parameters())
        runner.optimizer.step()
