"""The benchmark's job as a user of MMEngine writes it: a model, ten hooks, a scheduler, clipping, default hooks.

python bench/overhead.py --dialect mmengine        what a step costs
python bench/overhead_mmengine.py                  how many tensor values are read between log lines
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from _common import small_job
from torch.utils._python_dispatch import TorchDispatchMode

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


class Clock(Hook):
    """CPU seconds of the steps, without what a runner builds, writes and reads before and after them."""

    priority = "LOWEST"
    spent = 0.0

    def before_train_epoch(self, runner: Any) -> None:
        self.begin = time.process_time()

    def after_train_epoch(self, runner: Any) -> None:
        self.spent = time.process_time() - self.begin


def runner(count: int, folder: str, *, optimizer: dict[str, Any] | None = None, hooks: int = 10) -> Runner:
    """The job on Étude's MMEngine face: all default hooks but the checkpoints'."""
    make, data = small_job()
    optimizer = optimizer or {"type": "AdamW", "lr": LR}
    return Runner(
        model=Net(make()),
        work_dir=folder,
        train_dataloader=data,
        train_cfg={"by_epoch": False, "max_iters": count},
        optim_wrapper={"optimizer": optimizer, "clip_grad": {"max_norm": CLIP}},
        param_scheduler={"type": "CosineAnnealingLR", "by_epoch": False, "T_max": count},
        default_hooks={"logger": {"type": "LoggerHook", "interval": EVERY}, "checkpoint": None},
        custom_hooks=[UserHook() for _ in range(hooks)],
        log_processor={"by_epoch": False},
        log_level="ERROR",
        randomness={"seed": 0},
        experiment_name=f"overhead{next(_names)}",
    )


def contestant(count: int, optimizer: dict[str, Any] | None = None) -> Callable[[], float]:
    """What the benchmark calls: ``count`` steps of the job, with AdamW or with ``optimizer``."""

    def work() -> float:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            made = runner(count, folder, optimizer=optimizer)
            made.register_hook(clock)
            made.train()
        return clock.spent

    return work


class Reads(TorchDispatchMode):
    """Counts how often a tensor's value became a Python number."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


def reads_between_log_lines(count: int) -> int:
    """Values read in all steps that log nothing."""
    reads, by_step = Reads(), {}

    class Note(Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            by_step[runner.iter + 1], reads.count = reads.count, 0

    with tempfile.TemporaryDirectory() as folder:
        made = runner(count, folder)
        made.register_hook(Note())
        with reads:
            made.train()
    return sum(number for step, number in by_step.items() if step % EVERY)


if __name__ == "__main__":
    steps = 200
    print(f"{steps} steps, a log line every {EVERY}: {reads_between_log_lines(steps)} values read between the lines")
