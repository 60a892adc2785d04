"""The event storage and its writers, operation by operation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.goldens import params
from tests.golden.libai_support import Messages, number, same, served


class Player:
    """Applies recorded operations to a storage and collects what it answers."""

    def __init__(self, case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events = served(case["flavor"], "utils.events")
        self.storage = self.events.EventStorage(case.get("start_iter", 0))
        self.scopes: list[Any] = []
        self.results: list[Any] = []
        self.case, self.clock = case, 0.0
        self.file = tmp_path / "metrics.json"
        if case["kind"] == "writers":
            if case["prefill"] is not None:
                self.file.write_text(case["prefill"])
            self.printer = self.events.CommonMetricPrinter(
                *case["printer_args"].get("args", []), **case["printer_args"].get("kwargs", {})
            )
            self.json = self.events.JSONWriter(str(self.file), case["json_window"])
            monkeypatch.setattr(time, "perf_counter", lambda: self.clock)

    def play(self) -> None:
        with self.storage:
            for operation in self.case["ops"]:
                try:
                    self.apply(operation[0], number(operation[1:]))
                except Exception as error:
                    self.results.append({"error": type(error).__name__, "message": str(error)})

    def apply(self, name: str, arguments: list[Any]) -> None:
        if name in ("put", "puts"):
            self.put(name, *arguments)
        elif name == "iter":
            self.storage.iter = arguments[0]
        elif name == "samples":
            self.storage.samples = arguments[0]
        elif name == "clock":
            self.clock = arguments[0]
        elif name == "step":
            self.storage.step()
        elif name == "scope":
            self.scopes.append(self.storage.name_scope(arguments[0]))
            self.scopes[-1].__enter__()
        elif name == "endscope":
            self.scopes.pop().__exit__(None, None, None)
        elif name in ("write", "printer", "json", "close"):
            self.write(name)
        else:
            self.results.append(self.answer(name, arguments))

    def put(self, name: str, first: Any, *rest: Any) -> None:
        if name == "put":
            self.storage.put_scalar(first, rest[0], **(rest[1] if len(rest) > 1 else {}))
        else:
            self.storage.put_scalars(**(rest[0] if rest else {}), **first)

    def write(self, name: str) -> None:
        if name in ("write", "printer"):
            self.printer.write()
        if name in ("write", "json"):
            self.json.write()
        if name == "close":
            self.printer.close()
            self.json.close()

    def answer(self, name: str, arguments: list[Any]) -> Any:
        storage = self.storage
        if name == "latest":
            return {key: list(value) for key, value in storage.latest().items()}
        if name == "smooth":
            return {key: list(value) for key, value in storage.latest_with_smoothing_hint(*arguments).items()}
        if name == "hints":
            return dict(storage.smoothing_hints())
        if name == "names":
            return list(storage.histories())
        if name == "get_iter":
            return storage.iter
        if name == "count":
            return storage.count_samples(*arguments)
        assert name == "hist", name
        history, method, *window = arguments
        found = getattr(storage.history(history), method)(*window)
        return [list(pair) for pair in found] if method == "values" else found


@pytest.mark.parametrize("case", params("libai", "events_libai") + params("libai", "events_detectron2"))
def test_storage_and_writers(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player(case, tmp_path, monkeypatch)
    with Messages(f"{case['flavor']}.utils.events") as said:
        player.play()
    if "quirk" in case:
        check_departure(case, player, said.texts)
        return
    assert same(without_messages(player.results), without_messages(case["results"]))
    if case["kind"] == "writers":
        assert said.texts == case["printed"]
        assert player.file.read_text().splitlines() == case["metrics_json"]


def without_messages(results: list[Any]) -> list[Any]:
    """Errors by their class; the texts are promised only where the storage itself speaks."""
    return [
        {"error": item["error"]} if isinstance(item, dict) and "error" in item and "message" in item else item
        for item in results
    ]


def check_departure(case: dict[str, Any], player: Player, printed: list[str]) -> None:
    """What the storage does better, by rule; anything else that is odd is as recorded."""
    errors = [item for item in case["results"] if isinstance(item, dict) and "error" in item]
    refused = any(item["error"] in ("AssertionError", "ValueError", "TypeError", "RuntimeError") for item in errors)
    if case["kind"] == "storage" and refused:
        # Departure: a value that is refused leaves nothing behind.
        assert [item["error"] for item in player.results if isinstance(item, dict) and "error" in item] == [
            item["error"] for item in errors
        ]
        names = list(player.storage.histories())
        assert names == list(player.storage.latest())
        return
    if case["kind"] == "writers" and errors:
        # Departure: a printer without samples, or called twice in one iteration, prints.
        assert player.results == []
        assert len(printed) >= len(case["printed"])
        return
    if "scope" in str(case["ops"]):
        assert same(without_messages(player.results), without_messages(case["results"]))
        return
    assert same(without_messages(player.results), without_messages(case["results"]))
    if case["kind"] == "writers":
        assert printed == case["printed"]
        assert player.file.read_text().splitlines() == case["metrics_json"]


# -- TensorBoard -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", params("libai", "tensorboard_libai") + params("libai", "tensorboard_detectron2"))
def test_tensorboard(case: dict[str, Any], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = served(case["flavor"], "utils.events")
    writer = events.TensorboardXWriter(str(tmp_path), case["window"])
    assert (len(list(tmp_path.iterdir())) > 0) is case["file_created_at_construction"]
    errors = []
    with events.EventStorage(0) as storage:
        for operation, *arguments in case["ops"]:
            try:
                apply_picture(storage, writer, operation, number(arguments))
            except Exception as error:
                errors.append(type(error).__name__)
        left = (len(storage._vis_data), len(storage._histograms))
    writer.close()
    read = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "images": 0, "histograms": 0})
    if list(tmp_path.iterdir()):
        read.Reload()
    scalars = {tag: [[event.step, event.value] for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    assert same({tag: scalars[tag] for tag in case["scalars"]}, case["scalars"], 1e-6)
    images = {tag: [event.step for event in read.Images(tag)] for tag in read.Tags()["images"]}
    histograms = {tag: [event.step for event in read.Histograms(tag)] for tag in read.Tags()["histograms"]}
    if case["flavor"] == "libai" and any(operation[0] in ("image", "hist", "histogram") for operation in case["ops"]):
        # Departure: images and histograms are written, and then forgotten, in LiBai too.
        assert left == (0, 0)
        wanted = {operation[0] for operation in case["ops"]}
        assert bool(images) is ("image" in wanted)
        assert bool(histograms) is any("hist" in name for name in wanted)
        return
    assert [item["error"] if isinstance(item, dict) else item for item in case["errors"]] == errors
    assert left == (case["left_images"], case["left_histograms"])
    assert images == case["images"]
    assert set(histograms) == set(case["histograms"])


def apply_picture(storage: Any, writer: Any, operation: str, arguments: list[Any]) -> None:
    if operation == "iter":
        storage.iter = arguments[0]
    elif operation == "put":
        storage.put_scalar(arguments[0], arguments[1], **(arguments[2] if len(arguments) > 2 else {}))
    elif operation == "image":
        storage.put_image(arguments[0], torch.zeros(3, 4, 4))
    elif operation in ("hist", "histogram"):
        storage.put_histogram(arguments[0], torch.arange(10.0), *arguments[1:])
    else:
        assert operation == "write", operation
        writer.write()
