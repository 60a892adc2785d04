"""The job of ``overhead.py`` on Lightning (``pip install pytorch-lightning``): the same features and kernels."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import pytorch_lightning as lightning
import torch
from _common import small_job

LR, CLIP, EVERY = 1e-3, 1.0, 50


class Batches:
    """Ready batches; Lightning takes a list for several loaders."""

    def __init__(self, data: list[Any], count: int) -> None:
        self.data, self.count = data, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return islice(cycle(self.data), self.count)


class Job(lightning.LightningModule):
    def __init__(self, net: torch.nn.Module, count: int) -> None:
        super().__init__()
        self.net, self.count, self.loss_of = net, count, torch.nn.CrossEntropyLoss()

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        inputs, target = batch
        loss: torch.Tensor = self.loss_of(self.net(inputs), target)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        # Lightning's own clipping refuses fused optimizers only in mixed precision.
        optimizer = torch.optim.AdamW(self.parameters(), lr=LR, fused=True)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(step / self.count))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Count(lightning.Callback):
    seen = 0

    def on_train_batch_end(self, *args: Any) -> None:
        self.seen += 1


class Clock(lightning.Callback):
    spent = 0.0

    def on_train_start(self, *args: Any) -> None:
        self.begin = time.process_time()

    def on_train_end(self, *args: Any) -> None:
        self.spent = time.process_time() - self.begin


def contestant(count: int) -> Callable[[], float]:
    make, data = small_job()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")

    def work() -> float:
        clock = Clock()
        trainer = lightning.Trainer(
            max_steps=count, accelerator="cpu", devices=1, gradient_clip_val=CLIP, log_every_n_steps=EVERY,
            callbacks=[*(Count() for _ in range(10)), clock], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Job(make(), count), Batches(data, count))
        return clock.spent

    return work
