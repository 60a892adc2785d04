"""The job of ``overhead.py`` on the HF Trainer (``pip install transformers accelerate``): the same features and kernels."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import torch
from _common import small_job
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

LR, CLIP, EVERY = 1e-3, 1.0, 50


class Net(torch.nn.Module):
    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net, self.loss_of = net, torch.nn.CrossEntropyLoss()

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.loss_of(self.net(inputs), labels)}


class Batches:
    """Ready batches."""

    def __init__(self, data: list[Any], count: int) -> None:
        self.data, self.count = [{"inputs": inputs, "labels": labels} for inputs, labels in data], count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return islice(cycle(self.data), self.count)


class Ready(Trainer):
    batches: Any = None

    def get_train_dataloader(self) -> Any:
        return self.batches


class Count(TrainerCallback):
    def __init__(self) -> None:
        self.seen = 0

    def on_step_end(self, *args: Any, **words: Any) -> None:
        self.seen += 1


class Clock(TrainerCallback):
    spent = 0.0

    def on_train_begin(self, *args: Any, **words: Any) -> None:
        self.begin = time.process_time()

    def on_train_end(self, *args: Any, **words: Any) -> None:
        self.spent = time.process_time() - self.begin


def contestant(count: int) -> Callable[[], float]:
    make, data = small_job()

    def work() -> float:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, max_steps=count, learning_rate=LR, lr_scheduler_type="cosine", optim="adamw_torch_fused",
                max_grad_norm=CLIP, logging_steps=EVERY, save_strategy="no", report_to=[], use_cpu=True,
                disable_tqdm=True, log_level="error",
            )  # fmt: skip
            trainer = Ready(Net(make()), arguments, callbacks=[*(Count() for _ in range(10)), clock])
            trainer.remove_callback(PrinterCallback)
            trainer.batches = Batches(data, count)
            trainer.train()
        return clock.spent

    return work
