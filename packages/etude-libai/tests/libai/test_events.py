"""The storage: nothing is read from a device before somebody asks, and scopes and values are kept in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from detectron2.utils.events import CommonMetricPrinter, EventStorage, JSONWriter, get_event_storage

from libai.utils import events as libai_events


class Unreadable(torch.Tensor):
    """A tensor that tells when it is read, as a device would have to."""

    reads = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__, torch.Tensor.numpy):
            Unreadable.reads += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_tensor_is_read_only_when_somebody_asks_and_all_at_once() -> None:
    Unreadable.reads = 0
    with libai_events.EventStorage(0) as storage:
        for step in range(5):
            storage.iter = step
            storage.put_scalar("loss", torch.tensor(float(step)).as_subclass(Unreadable))
            storage.put_scalar("lr", 0.1 * step, smoothing_hint=False)
        assert Unreadable.reads == 0
        assert storage.latest() == {"loss": (4.0, 4), "lr": (0.4, 4)}
        assert Unreadable.reads <= 1
        assert [value for value, _ in storage.history("loss").values()] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_tensor_that_changes_after_it_was_put_keeps_its_value() -> None:
    with EventStorage(0) as storage:
        counter = torch.zeros(())
        for _ in range(3):
            storage.put_scalar("count", counter)
            counter += 1
        assert [value for value, _ in storage.history("count").values()] == [0.0, 1.0, 2.0]


def test_a_tensor_of_several_elements_is_refused_at_once() -> None:
    with EventStorage(0) as storage, pytest.raises(ValueError, match="shape"):
        storage.put_scalar("x", torch.zeros(3))


def test_a_scope_ends_also_when_its_block_raises() -> None:
    with EventStorage(0) as storage:
        with pytest.raises(RuntimeError), storage.name_scope("inner"):
            raise RuntimeError
        storage.put_scalar("x", 1.0)
        assert list(storage.latest()) == ["x"]


def test_there_is_no_storage_outside_of_one() -> None:
    with pytest.raises(AssertionError, match="has to be called inside"):
        get_event_storage()


def test_metrics_of_other_periods_stand_in_the_line_of_their_iteration(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    writer = JSONWriter(str(path), window_size=10)
    with EventStorage(0) as storage:
        for step in range(20):
            storage.put_scalar("each", step)
            if (step + 1) % 5 == 0:
                storage.put_scalar("fifth", step)
            if (step + 1) % 10 == 0:
                writer.write()
            storage.step()
        assert storage.count_samples("fifth", 10) == 2
    writer.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["each"], line["fifth"]) for line in lines] == [(4.5, 6.5), (14.5, 16.5)]


def test_the_console_line_has_an_eta_only_when_the_end_is_known(caplog: pytest.LogCaptureFixture) -> None:
    with EventStorage(0) as storage, caplog.at_level("INFO"):
        storage.put_scalar("time", 1.0)
        storage.put_scalar("[metric]seen", 7.0)
        CommonMetricPrinter(10).write()
        CommonMetricPrinter().write()
    known, unknown = (record.getMessage() for record in caplog.records)
    assert "eta: 0:00:09" in known
    assert "[metric]seen: 7" in known
    assert "eta" not in unknown


def test_a_writer_that_goes_on_leaves_no_empty_event_file(tmp_path: Path) -> None:
    for life, state in enumerate((None, {"last_write": 4}), 1):
        writer = libai_events.TensorboardXWriter(str(tmp_path))
        if state is not None:
            writer.load_state_dict(state)
        with libai_events.EventStorage(5) as storage:
            storage.put_scalar("loss", 1.0)
            writer.write()
        writer.close()
        assert len(list(tmp_path.glob("events.*"))) == life
