"""A hook of MMPretrain's that its pretraining recipes use."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

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
