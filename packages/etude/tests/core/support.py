"""Runs that several tests of this room train."""

from __future__ import annotations

import torch

from etude.core.forward import Forward
from etude.core.hook import HookTable
from etude.core.loop import epochs
from etude.core.run import Run
from etude.core.update import Step


def make_run(n_batches=4, loop=epochs, hooks=(), loss=None, model=None, data=None, **options) -> Run:
    torch.manual_seed(0)
    model = model or torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = Step(Forward(model, {"loss": loss or torch.nn.CrossEntropyLoss()}), {"": optimizer}, **options)
    data = data or [(torch.randn(5, 3), torch.randint(2, (5,))) for _ in range(n_batches)]
    table = HookTable(hooks, steps_per_epoch=len(data))
    run = Run(model, update, loop, table, {"train": data}, {"": optimizer}, steps_per_epoch=len(data))
    run.max_epochs, run.total_steps = 2, 2 * len(data)
    return run
