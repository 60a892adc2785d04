"""The benchmark's job as a user of mmcv 1.x writes it: a model with ``train_step``, ten hooks, a policy, clipping."""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from _common import small_job

from etude.dialects import imports

imports.install()

from mmcv.runner import Hook, IterBasedRunner

LR, CLIP, EVERY = 1e-3, 1.0, 50
_names = itertools.count()


class Net(torch.nn.Module):
    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net
        self.loss_of = torch.nn.CrossEntropyLoss()

    def train_step(self, data: Any, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
        inputs, target = data
        loss = self.loss_of(self.net(inputs), target)
        return {"loss": loss, "log_vars": {"loss": loss.detach()}, "num_samples": len(target)}


class UserHook(Hook):
    def __init__(self) -> None:
        self.seen = 0

    def after_train_iter(self, runner: Any) -> None:
        self.seen += 1


def runner(count: int, folder: str, *, hooks: int = 10) -> tuple[IterBasedRunner, list[Any]]:
    """The job on Étude's mmcv face: all default hooks but the checkpoints'."""
    make, data = small_job()
    net = Net(make())
    logger = logging.getLogger(f"overhead{next(_names)}")
    logger.setLevel(logging.ERROR)
    made = IterBasedRunner(
        net,
        optimizer=torch.optim.AdamW(net.parameters(), lr=LR),
        work_dir=folder,
        logger=logger,
        meta={},
        max_iters=count,
    )
    made.register_training_hooks(
        lr_config={"policy": "CosineAnnealing", "min_lr": 0.0},
        optimizer_config={"grad_clip": {"max_norm": CLIP}},
        log_config={"interval": EVERY, "hooks": [{"type": "TextLoggerHook"}]},
        custom_hooks_config=[UserHook() for _ in range(hooks)],
    )
    return made, data


def contestant(count: int) -> Callable[[], None]:
    """What the benchmark calls: ``count`` steps of the job."""

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            made, data = runner(count, folder)
            made.run([data], [("train", 1)])

    return work
