"""Hooks of MMPretrain's: a number that warms up, averages that are validated, exact statistics of batch norm."""

from __future__ import annotations

import warnings
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from etude.dialects.mmengine.live.dist.collectives import all_reduce
from etude.dialects.mmengine.live.hooks.ema_hook import EMAHook as BaseEMAHook
from etude.dialects.mmengine.live.hooks.hook import DataBatch, Hook
from etude.dialects.mmengine.live.model.wrappers import is_model_wrapper


class WarmupParamHook(Hook):
    """Lets a number of a module (``module_name.param_name``) grow linearly to its value over the first epochs."""

    def __init__(self, param_name: str, module_name: str, warmup_epochs: int) -> None:
        self.param_name, self.module_name, self.warmup_epochs = param_name, module_name, warmup_epochs

    def before_train(self, runner: Any) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        self.module = attrgetter(self.module_name)(model)
        self.warmup_param = getattr(self.module, self.param_name)

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        length = self.warmup_epochs * len(runner.train_dataloader)
        share = min(1.0, runner.iter / length) if length else 1.0
        setattr(self.module, self.param_name, share * self.warmup_param)


class EMAHook(BaseEMAHook):
    """Validates the average, the trained weights, or both; then the latter's metrics are ``val/<name>_origin``."""

    def __init__(
        self,
        ema_type: str = "ExponentialMovingAverage",
        strict_load: bool = False,
        begin_iter: int = 0,
        begin_epoch: int = 0,
        evaluate_on_ema: bool = True,
        evaluate_on_origin: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            ema_type=ema_type, strict_load=strict_load, begin_iter=begin_iter, begin_epoch=begin_epoch, **kwargs
        )
        if not evaluate_on_ema and not evaluate_on_origin:
            warnings.warn("neither evaluate_on_ema nor evaluate_on_origin: the trained weights are used", stacklevel=2)
        self.evaluate_on_ema, self.evaluate_on_origin = evaluate_on_ema, evaluate_on_origin

    def before_val_epoch(self, runner: Any) -> None:
        self._swap_if_asked()

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        self._swap_if_asked()
        self._evaluate_origin(runner, runner.val_loop, "val")

    def before_test_epoch(self, runner: Any) -> None:
        self._swap_if_asked()

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        self._swap_if_asked()
        self._evaluate_origin(runner, runner.test_loop, "test")

    def _swap_if_asked(self) -> None:
        if self.evaluate_on_ema:
            self._swap_ema_parameters()

    def _evaluate_origin(self, runner: Any, loop: Any, mode: str) -> None:
        """Once more, with the trained weights."""
        if not (self.evaluate_on_ema and self.evaluate_on_origin):
            return
        runner.model.eval()
        for idx, data_batch in enumerate(loop.dataloader):
            loop.run_iter(idx, data_batch)
        for name, value in loop.evaluator.evaluate(len(loop.dataloader.dataset)).items():
            runner.message_hub.update_scalar(f"{mode}/{name}_origin", value)


class PreciseBNHook(Hook):
    """After an epoch: running statistics of batch norm that are those of ``num_samples`` samples, not a moving mean."""

    priority = "ABOVE_NORMAL"

    def __init__(self, num_samples: int = 8192, interval: int = 1) -> None:
        assert interval > 0 and num_samples > 0, "interval and num_samples should be greater than 0"
        self.num_samples, self.interval = num_samples, interval

    def after_train_epoch(self, runner: Any) -> None:
        if self.every_n_epochs(runner, self.interval):
            layers = [
                m for m in runner.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training
            ]
            if layers:
                self._measure(runner, layers)

    @torch.no_grad()
    def _measure(self, runner: Any, layers: list[Any]) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        momenta = [layer.momentum for layer in layers]
        sums = [(torch.zeros_like(layer.running_mean), torch.zeros_like(layer.running_var)) for layer in layers]
        seen = 0
        for layer in layers:
            layer.momentum = 1.0  # the running statistics are then those of the last batch
        for data_batch in runner.train_dataloader:
            data = model.data_preprocessor(data_batch, False)
            model(**data) if isinstance(data, dict) else model(*data)
            for layer, (mean, variance) in zip(layers, sums, strict=True):
                mean += layer.running_mean
                variance += layer.running_var
            seen += 1
            if seen * (runner.train_dataloader.batch_size or 1) * runner.world_size >= self.num_samples:
                break
        for layer, momentum, (mean, variance) in zip(layers, momenta, sums, strict=True):
            layer.momentum = momentum
            layer.running_mean.copy_(_over_ranks(mean / seen))
            layer.running_var.copy_(_over_ranks(variance / seen))


def _over_ranks(value: torch.Tensor) -> torch.Tensor:
    all_reduce(value, "mean")
    return value
