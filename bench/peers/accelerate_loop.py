"""The job of ``overhead.py`` as a loop with Accelerate (``pip install accelerate``): the same features and kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import cycle, islice

import torch
from _common import small_job
from accelerate import Accelerator

LR, CLIP, EVERY = 1e-3, 1.0, 50


class Count:
    seen = 0

    def after_step(self, step: int) -> None:
        self.seen += 1


def contestant(count: int) -> Callable[[], float]:
    make, data = small_job()

    def work() -> float:
        accelerator = Accelerator(cpu=True)
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(step / count))
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        loss_of = torch.nn.CrossEntropyLoss()
        hooks = [Count() for _ in range(10)]
        losses: list[torch.Tensor] = []
        model.train()
        begin = time.process_time()
        for step, (inputs, target) in enumerate(islice(cycle(data), count)):
            with accelerator.accumulate(model):
                loss = loss_of(model(inputs), target)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
            for hook in hooks:
                hook.after_step(step)
            if (step + 1) % EVERY == 0:
                torch.stack(losses).mean().item()
                losses.clear()
        return time.process_time() - begin

    return work
