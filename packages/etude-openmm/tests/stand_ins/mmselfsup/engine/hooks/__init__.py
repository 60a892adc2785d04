"""Hooks of MMSelfSup: SimSiam, DenseCL and SwAV."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.dist import get_dist_info, is_distributed
from mmengine.hooks import Hook

from mmselfsup.registry import HOOKS
from mmselfsup.utils import get_model


@HOOKS.register_module()
class SimSiamHook(Hook):
    """Sets the learning rate of groups with a true ``fix_lr`` to ``lr``, before every epoch or iteration."""

    def __init__(self, fix_pred_lr: bool, lr: float, adjust_by_epoch: bool | None = True) -> None:
        self.fix_pred_lr, self.lr, self.adjust_by_epoch = fix_pred_lr, lr, adjust_by_epoch

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if not self.adjust_by_epoch:
            self._fix(runner)

    def before_train_epoch(self, runner: Any) -> None:
        if self.adjust_by_epoch:
            self._fix(runner)

    def _fix(self, runner: Any) -> None:
        if self.fix_pred_lr:
            for group in runner.optim_wrapper.optimizer.param_groups:
                if group.get("fix_lr"):
                    group["lr"] = self.lr


@HOOKS.register_module()
class DenseCLHook(Hook):
    """Turns the dense loss off (``loss_lambda`` is 0) for the first ``start_iters`` iterations."""

    def __init__(self, start_iters: int = 1000) -> None:
        self.start_iters = start_iters

    def before_train(self, runner: Any) -> None:
        model = get_model(runner.model)
        assert hasattr(model, "loss_lambda"), 'The runner must have attribute "loss_lambda" in DenseCL.'
        self.loss_lambda = model.loss_lambda

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        get_model(runner.model).loss_lambda = self.loss_lambda if runner.iter >= self.start_iters else 0.0


@HOOKS.register_module()
class SwAVHook(Hook):
    """Freezes layers at the beginning and keeps SwAV's queue of features, which is saved beside the checkpoints.

    ``frozen_layers_cfg`` maps a part of a parameter's name to the number of iterations for which it is frozen.
    """

    def __init__(
        self,
        batch_size: int,
        epoch_queue_starts: int = 15,
        crops_for_assign: Sequence[int] = (0, 1),
        feat_dim: int = 128,
        queue_length: int = 0,
        interval: int = 1,
        frozen_layers_cfg: Mapping[str, int] | None = None,
    ) -> None:
        self.batch_size, self.epoch_queue_starts = batch_size, epoch_queue_starts
        self.crops_for_assign, self.feat_dim = list(crops_for_assign), feat_dim
        self.queue_length, self.interval = queue_length, interval
        self.frozen_layers_cfg = dict(frozen_layers_cfg or {})
        self.queue: torch.Tensor | None = None

    def before_run(self, runner: Any) -> None:
        rank, world_size = get_dist_info()
        self.queue_path = os.path.join(runner.work_dir, f"queue{rank if is_distributed() else ''}.pth")
        if os.path.isfile(self.queue_path):
            self.queue = torch.load(self.queue_path, weights_only=True)["queue"]
            get_model(runner.model).head.loss.queue = self.queue
        # SwAV's queue has to hold whole batches of all processes.
        self.queue_length -= self.queue_length % (self.batch_size * world_size)

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        for layer, iterations in self.frozen_layers_cfg.items():
            learns = runner.iter >= iterations
            for name, param in get_model(runner.model).named_parameters():
                if layer in name:
                    param.requires_grad = learns

    def before_train_epoch(self, runner: Any) -> None:
        starts = self.queue_length > 0 and runner.epoch >= self.epoch_queue_starts
        if starts and self.queue is None:
            _, world_size = get_dist_info()
            device = next(get_model(runner.model).parameters()).device
            shape = (len(self.crops_for_assign), self.queue_length // world_size, self.feat_dim)
            self.queue = torch.zeros(shape, device=device)
        loss = get_model(runner.model).head.loss
        loss.queue, loss.use_queue = self.queue, False

    def after_train_epoch(self, runner: Any) -> None:
        self.queue = get_model(runner.model).head.loss.queue
        if self.queue is not None and self.every_n_epochs(runner, self.interval):
            unfinished = f"{self.queue_path}.part"
            torch.save({"queue": self.queue}, unfinished)
            os.replace(unfinished, self.queue_path)
