"""Hooks of mmclassification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from etude.dialects.mmcv1.live.checks import ConfigValueError, require
from etude.dialects.mmcv1.live.hooks import evaluation
from etude.dialects.mmcv1.live.hooks.annealing import annealing_cos
from etude.dialects.mmcv1.live.hooks.hook import HOOKS, Hook
from etude.dialects.mmcv1.live.hooks.lr_updater import CosineAnnealingLrUpdaterHook, progress
from etude.dialects.mmcv1.live.hooks.optimizer_hook import OptimizerHook, loss_of
from etude.dialects.mmcv1.live.mmcls.data import METRICS, BaseDataset
from etude.dialects.mmcv1.live.parallel import unwrap
from etude.errors import suggest

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


class _Latest(evaluation.EvalHook):
    """Keeps what the model said last, for hooks that want to look at it."""

    latest_results: Any = None

    def _check_arguments(self, runner: BaseRunner, dataset: Any) -> None:
        """As far as mmclassification's own ``evaluate`` is asked, its metrics are known before training too."""
        super()._check_arguments(runner, dataset)
        metric = self.eval_kwargs.get("metric", "accuracy")
        if getattr(type(dataset), "evaluate", None) is not BaseDataset.evaluate:
            return
        for name in [metric] if isinstance(metric, str) else metric:
            if name not in METRICS:
                raise ConfigValueError(
                    f"metric {name} is not supported",
                    at=evaluation.place_of(runner, "metric"), hint=suggest(name, METRICS),
                )  # fmt: skip
        first = metric if isinstance(metric, str) else next(iter(metric), None)
        if self.key_indicator == "auto" and first is not None:
            self.require_rule(runner, first)

    def _take(self, runner: BaseRunner, results: Any) -> None:
        self.latest_results = results
        super()._take(runner, results)


class EvalHook(_Latest):
    """Evaluation in one process."""


class DistEvalHook(_Latest, evaluation.DistEvalHook):
    """Evaluation over all ranks."""


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


@HOOKS.register_module()
class CosineAnnealingCooldownLrUpdaterHook(CosineAnnealingLrUpdaterHook):
    """Half a cosine wave, then ``cool_down_time`` epochs at ``cool_down_ratio`` times its end."""

    def __init__(
        self,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        cool_down_ratio: float = 0.1,
        cool_down_time: int = 10,
        **kwargs: Any,
    ) -> None:
        self.cool_down_time, self.cool_down_ratio = cool_down_time, cool_down_ratio
        super().__init__(min_lr, min_lr_ratio, **kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at, end = progress(self, runner)
        target = self.target(base_lr)
        if at > end - self.cool_down_time:
            return target * self.cool_down_ratio
        return annealing_cos(base_lr, target, at / (end - self.cool_down_time))


@HOOKS.register_module()
class PreciseBNHook(Hook):
    """After an epoch, the statistics of BatchNorm over ``num_samples`` training samples with the final weights."""

    def __init__(self, num_samples: int = 8192, interval: int = 1) -> None:
        require(interval > 0 and num_samples > 0, "interval and num_samples must be positive")
        self.interval, self.num_samples = interval, num_samples

    def after_train_epoch(self, runner: BaseRunner) -> None:
        if self.every_n_epochs(runner, self.interval):
            norms = [part for part in runner.model.modules() if isinstance(part, _BatchNorm) and part.training]
            if norms:
                self._recompute(runner, norms)

    @torch.no_grad()
    def _recompute(self, runner: BaseRunner, norms: list[_BatchNorm]) -> None:
        before = [part.momentum for part in norms]
        means = [torch.zeros_like(part.running_mean) for part in norms]  # type: ignore[arg-type]
        variances = [torch.zeros_like(part.running_var) for part in norms]  # type: ignore[arg-type]
        for part in norms:
            part.momentum = 1.0
        seen = 0
        for batch in runner.data_loader:
            size = int(runner.model.train_step(batch)["num_samples"])  # type: ignore[operator]
            seen += size
            for part, mean, variance in zip(norms, means, variances, strict=True):
                mean.add_((part.running_mean - mean) * (size / seen))  # type: ignore[operator]
                variance.add_((part.running_var - variance) * (size / seen))  # type: ignore[operator]
            if seen >= self.num_samples:
                break
        for part, mean, variance, momentum in zip(norms, means, variances, before, strict=True):
            part.running_mean, part.running_var, part.momentum = mean, variance, momentum


@HOOKS.register_module()
class ClassNumCheckHook(Hook):
    """Refuses to train when a part's ``num_classes`` differs from the number of names the dataset has."""

    def before_train_epoch(self, runner: BaseRunner) -> None:
        self._check(runner)

    def before_val_epoch(self, runner: BaseRunner) -> None:
        self._check(runner)

    def _check(self, runner: BaseRunner) -> None:
        dataset = runner.data_loader.dataset
        classes = getattr(dataset, "CLASSES", None)
        if classes is None:
            runner.logger.warning(f"Please set `CLASSES` in the {type(dataset).__name__} to check it")
            return
        require(not isinstance(classes, str), f"CLASSES of {type(dataset).__name__} should be a tuple of names")
        for name, part in unwrap(runner.model).named_modules():
            number = getattr(part, "num_classes", None)
            if isinstance(number, int) and not isinstance(part, nn.modules.loss._Loss):
                require(
                    number == len(classes),
                    f"the `num_classes` ({number}) of {name or type(part).__name__} does not match the length "
                    f"{len(classes)} of `CLASSES` in {type(dataset).__name__}",
                )
