"""The job of ``overhead.py`` on Ignite (``pip install --no-deps pytorch-ignite``): the same features and kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import torch
from _common import small_job
from ignite.engine import Engine, Events

LR, CLIP, EVERY = 1e-3, 1.0, 50


def contestant(count: int) -> Callable[[], float]:
    make, data = small_job()

    def work() -> float:
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(step / count))
        loss_of = torch.nn.CrossEntropyLoss()
        losses: list[torch.Tensor] = []
        seen = [0] * 10

        def update(engine: Engine, batch: Any) -> torch.Tensor:
            inputs, target = batch
            loss = loss_of(model(inputs), target)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            return loss.detach()

        def count_in(engine: Engine, place: int) -> None:
            seen[place] += 1

        def log(engine: Engine) -> None:
            torch.stack(losses).mean().item()
            losses.clear()

        engine = Engine(update)
        engine.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: scheduler.step())
        engine.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
        for place in range(10):
            engine.add_event_handler(Events.ITERATION_COMPLETED, count_in, place)
        engine.add_event_handler(Events.ITERATION_COMPLETED(every=EVERY), log)
        model.train()
        begin = time.process_time()
        engine.run(islice(cycle(data), count), max_epochs=1, epoch_length=count)
        return time.process_time() - begin

    return work
