"""A small run for the tests of hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from etude import registry
from etude.core.evaluation import Evaluation
from etude.core.forward import Forward
from etude.core.hook import Hook, HookTable
from etude.core.loop import epochs
from etude.core.run import Run
from etude.core.update import Step
from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.metrics import Accuracy

registry.load_builtins()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(elsewhere: None) -> None:
    """Every test of this room."""


def small_run(
    hooks: Sequence[Hook] = (),
    *,
    model: torch.nn.Module | None = None,
    epochs_wanted: int = 2,
    batches: int = 4,
    optimizer: Any = None,
    folder: Any = None,
    **options: Any,
) -> Run:
    """Two classes of points; ``batches`` steps an epoch."""
    torch.manual_seed(0)
    model = model or torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = optimizer(model) if optimizer else torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.01)
    points = torch.randn(8 * batches, 3)
    data = TensorData(points, (points.sum(1) > 0).long())
    update = Step(Forward(model, {"loss": torch.nn.CrossEntropyLoss()}), {"": optimizer}, **options)
    run = Run(
        model,
        update,
        epochs,
        HookTable(hooks, steps_per_epoch=batches),
        {"train": Loader(data, batch_size=8, shuffle=True), "val": Loader(data, batch_size=16)},
        {"": optimizer},
        evaluation=Evaluation(update.forward, {"accuracy": Accuracy()}),
        steps_per_epoch=batches,
        max_epochs=epochs_wanted,
        total_steps=epochs_wanted * batches,
        folder=folder,
    )
    for hook in run.hooks:
        attach = getattr(hook, "attach", None)
        if attach is not None:
            attach(run)
    return run


class Keep:
    """A writer that keeps its records."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, record: Any) -> None:
        self.records.append(record)

    def close(self) -> None: ...
