"""What the originals' own tests, and code that looks inside them, find at the places they know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from detectron2.engine import SimpleTrainer, hooks
from detectron2.utils import events
from detectron2.utils.events import CommonMetricPrinter, EventStorage, JSONWriter
from torch import nn


class Simple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": x.sum() + sum(p.mean() for p in self.parameters())}


def batches() -> Iterator[torch.Tensor]:
    while True:
        yield torch.rand(3, 3)


def a_trainer(**options: object) -> SimpleTrainer:
    model = Simple()
    return SimpleTrainer(model, batches(), torch.optim.SGD(model.parameters(), 0.1), **options)


# -- events ------------------------------------------------------------------------------------------------------------


def test_metrics_that_are_written_in_the_background_are_all_there_at_the_end(tmp_path: Path) -> None:
    trainer = a_trainer(async_write_metrics=True)
    writers = [CommonMetricPrinter(200), JSONWriter(str(tmp_path / "metrics.json"), window_size=1)]
    trainer.register_hooks([hooks.IterationTimer(), hooks.PeriodicWriter(writers, period=1)])
    trainer.train(0, 200)
    for name in ("data_time", "total_loss"):
        assert [at for _, at in trainer.storage.history(name).values()] == list(range(200))
    assert len(trainer.storage.history("time").values()) == 198


def test_metrics_that_are_gathered_now_and_then_are_smoothed_over_what_there_is(tmp_path: Path) -> None:
    trainer = a_trainer(gather_metric_period=5)
    file = tmp_path / "metrics.json"
    trainer.register_hooks([hooks.IterationTimer(), hooks.PeriodicWriter([JSONWriter(str(file), 10)], period=10)])
    trainer.train(0, 50)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["iteration"] for line in lines] == [9, 19, 29, 39, 49]
    values = [value for value, _ in trainer.storage.history("total_loss").values()]
    assert [line["total_loss"] for line in lines] == [
        (a + b) / 2 for a, b in zip(values[::2], values[1::2], strict=True)
    ]


def test_an_exception_while_metrics_are_written_is_logged_where_it_happened(caplog: pytest.LogCaptureFixture) -> None:
    class Nan(Simple):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": super().forward(x)["loss"] * float("nan")}

    model = Nan()
    trainer = SimpleTrainer(model, batches(), torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(FloatingPointError, match="at iteration=0"):
        trainer.train(0, 3)
    assert "Exception in writing metrics: " in caplog.messages


def test_what_is_inside_a_storage_is_up_to_date() -> None:
    with EventStorage(5) as storage:
        storage.put_scalar("a", torch.tensor(3.0))
        assert storage._latest_scalars["a"] == (3.0, 5)
        storage.put_scalar("a", torch.tensor(4.0))
        assert storage._history["a"].latest() == 4.0
        assert events._CURRENT_STORAGE_STACK[-1] is storage


def test_the_time_that_is_left_can_be_asked_for() -> None:
    printer = CommonMetricPrinter(100)
    with EventStorage(3) as storage:
        assert (printer._get_eta(storage), printer._last_write[0]) == (None, 3)
        storage.put_scalar("time", 2.0)
        assert printer._get_eta(storage) == "0:03:12"
        assert storage.latest()["eta_seconds"] == (192.0, 3)
