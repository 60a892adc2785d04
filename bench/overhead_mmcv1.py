"""The benchmark's job as a user of mmcv 1.x writes it: a model with ``train_step``, ten hooks, a policy, clipping."""

from __future__ import annotations

import itertools
import logging
import math
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from _common import small_job

from etude.dialects import imports

imports.install()

from mmcv.runner import BaseRunner, EpochBasedRunner, Hook, IterBasedRunner

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


class Clock(Hook):
    """CPU seconds of the steps, without what was set up before them."""

    spent = 0.0

    def before_run(self, runner: Any) -> None:
        self.begin = time.process_time()

    def after_run(self, runner: Any) -> None:
        self.spent = time.process_time() - self.begin


def runner(count: int, folder: str, *, hooks: int = 10, epochs: bool = False) -> tuple[BaseRunner, list[Any]]:
    """The job on Étude's mmcv face: all default hooks but the checkpoints'."""
    make, data = small_job()
    net = Net(make())
    logger = logging.getLogger(f"overhead{next(_names)}")
    logger.setLevel(logging.ERROR)
    kind = EpochBasedRunner if epochs else IterBasedRunner
    made = kind(
        net,
        optimizer=torch.optim.AdamW(net.parameters(), lr=LR),
        work_dir=folder,
        logger=logger,
        meta={},
        **({"max_epochs": count // len(data)} if epochs else {"max_iters": count}),
    )
    made.register_training_hooks(
        lr_config={"policy": "CosineAnnealing", "min_lr": 0.0, "by_epoch": False},
        optimizer_config={"grad_clip": {"max_norm": CLIP}},
        log_config={"interval": EVERY, "hooks": [{"type": "TextLoggerHook", "by_epoch": False}]},
        custom_hooks_config=[UserHook() for _ in range(hooks)],
    )
    return made, data


def by_hand(count: int) -> Callable[[], float]:
    """The same model in a loop that somebody wrote for it: what the runner is measured against."""
    make, data = small_job()

    def work() -> float:
        net = Net(make())
        optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(step / count))
        hooks = [UserHook() for _ in range(10)]
        losses: list[torch.Tensor] = []
        net.train()
        begin = time.process_time()
        for step in range(count):
            outputs = net.train_step(data[step % len(data)], optimizer)
            optimizer.zero_grad()
            outputs["loss"].backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            losses.append(outputs["log_vars"]["loss"])
            for hook in hooks:
                hook.after_train_iter(None)
            if (step + 1) % EVERY == 0:
                torch.stack(losses).mean().item()
                losses.clear()
        return time.process_time() - begin

    return work


def on_etude(count: int, *, epochs: bool = False) -> Callable[[], float]:
    """``count`` steps of the job by a runner, an epoch more or less."""

    def work() -> float:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            made, data = runner(count, folder, epochs=epochs)
            made.register_hook(clock, "LOWEST")
            made.run([data], [("train", 1)])
        return clock.spent * count / made.iter

    return work


#: What the benchmark compares: name → what makes the job of so many steps.
CONTESTANTS: dict[str, Callable[[int], Callable[[], float]]] = {
    "by hand, train_step": by_hand,
    "mmcv1": on_etude,
    "mmcv1, epochs": partial(on_etude, epochs=True),
}
