"""The benchmark's job as a user of MMEngine writes it: a model, ten hooks, a scheduler, clipping, default hooks."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from _common import small_job

from etude.dialects import imports

imports.install()

from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner

LR, CLIP, EVERY = 1e-3, 1.0, 50
_names = itertools.count()


class Net(BaseModel):
    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net
        self.loss_of = torch.nn.CrossEntropyLoss()

    def forward(self, inputs: torch.Tensor, target: torch.Tensor, mode: str = "tensor") -> Any:
        return {"loss": self.loss_of(self.net(inputs), target)}


class UserHook(Hook):
    def __init__(self) -> None:
        self.seen = 0

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.seen += 1


def runner(count: int, folder: str, *, hooks: int = 10) -> Runner:
    """The job on Étude's MMEngine face: all default hooks but the checkpoints'."""
    make, data = small_job()
    return Runner(
        model=Net(make()),
        work_dir=folder,
        train_dataloader=data,
        train_cfg={"by_epoch": False, "max_iters": count},
        optim_wrapper={"optimizer": {"type": "AdamW", "lr": LR}, "clip_grad": {"max_norm": CLIP}},
        param_scheduler={"type": "CosineAnnealingLR", "by_epoch": False, "T_max": count},
        default_hooks={"logger": {"type": "LoggerHook", "interval": EVERY}, "checkpoint": None},
        custom_hooks=[UserHook() for _ in range(hooks)],
        log_processor={"by_epoch": False},
        log_level="ERROR",
        randomness={"seed": 0},
        experiment_name=f"overhead{next(_names)}",
    )


def contestant(count: int) -> Callable[[], None]:
    """What the benchmark calls: ``count`` steps of the job."""

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            runner(count, folder).train()

    return work
