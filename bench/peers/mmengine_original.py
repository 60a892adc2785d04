"""The job of ``overhead.py`` on the original MMEngine (``pip install mmengine``): the same features and kernels."""

from __future__ import annotations

import itertools
import logging
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from _common import small_job
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner

LR, CLIP, EVERY = 1e-3, 1.0, 50
_names = itertools.count()


class Net(BaseModel):
    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net, self.loss_of = net, torch.nn.CrossEntropyLoss()

    def forward(self, inputs: torch.Tensor, target: torch.Tensor, mode: str = "tensor") -> Any:
        return {"loss": self.loss_of(self.net(inputs), target)}


class Ready(torch.utils.data.DataLoader[Any]):
    """Ready batches; MMEngine takes nothing but a DataLoader."""

    def __iter__(self) -> Any:
        return iter(self.dataset)


class Count(Hook):
    seen = 0

    def after_train_iter(self, *args: Any, **words: Any) -> None:
        self.seen += 1


class Clock(Hook):
    priority = "LOWEST"
    spent = 0.0

    def before_train_epoch(self, runner: Any) -> None:
        self.begin = time.process_time()

    def after_train_epoch(self, runner: Any) -> None:
        self.spent = time.process_time() - self.begin


def contestant(count: int) -> Callable[[], float]:
    make, data = small_job()

    def work() -> float:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            runner = Runner(
                model=Net(make()),
                work_dir=folder,
                train_dataloader=Ready(data, batch_size=None),
                train_cfg={"by_epoch": False, "max_iters": count},
                optim_wrapper={
                    "optimizer": {"type": "AdamW", "lr": LR, "fused": True},
                    "clip_grad": {"max_norm": CLIP},
                },
                param_scheduler={"type": "CosineAnnealingLR", "by_epoch": False, "T_max": count},
                default_hooks={
                    "logger": {"type": "LoggerHook", "interval": EVERY},
                    "checkpoint": None,
                    "sampler_seed": None,
                },
                custom_hooks=[*(Count() for _ in range(10)), clock],
                log_processor={"by_epoch": False},
                log_level=logging.ERROR,
                experiment_name=f"peer{next(_names)}",
            )
            runner.train()
        return clock.spent

    return work
