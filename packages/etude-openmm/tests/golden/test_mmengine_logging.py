"""Losses, histories and log lines from a hub that was filled by hand. Whole runs: ``test_mmengine_full_run.py``."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.golden.goldens import cases
from tests.golden.mmengine import toys

from mmengine.logging import HistoryBuffer, MessageHub  # isort: skip  # served by toys' import
from mmengine.runner import LogProcessor  # isort: skip

CASES = [case for case in cases("mmengine", "logging") if case.get("kind") != "full_run"]
_numbers = itertools.count()


def parse_losses(case: dict[str, Any]) -> None:
    def tensors(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return torch.tensor(value["t"]) if "t" in value else [torch.tensor(item) for item in value["list"]]

    loss, log_vars = toys.ToyNet().parse_losses({name: tensors(value) for name, value in case["losses"].items()})
    assert float(loss) == pytest.approx(case["expect"]["loss"], rel=1e-5, nan_ok=True)
    assert list(log_vars) == [name for name, _ in case["expect"]["log_vars"]]
    assert [float(value) for value in log_vars.values()] == pytest.approx(
        [value for _, value in case["expect"]["log_vars"]], rel=1e-5, nan_ok=True
    )


def history_buffer(case: dict[str, Any]) -> None:
    buffer = HistoryBuffer(**case.get("buffer", {}))
    for value, count in zip(case["values"], case["counts"], strict=True):
        buffer.update(value, count)
    for (method, window), expected in zip(case["queries"], case["expect"], strict=True):
        arguments = () if window is None else (window,)
        assert buffer.statistics(method, *arguments) == pytest.approx(expected, rel=1e-9, nan_ok=True), (method, window)


def log_processor(case: dict[str, Any]) -> None:
    hub = MessageHub.get_instance(f"golden-{next(_numbers)}")
    for key, values in case["scalars"].items():
        for value in values:
            hub.update_scalar(key, torch.tensor(value, dtype=torch.float64))
    hub.update_info_dict(case.get("info", {}))
    processor = LogProcessor(**case["log_processor"])
    state = case["state"]
    train, val = (SimpleNamespace(dataloader=range(state[size])) for size in ("n_train", "n_val"))
    runner = SimpleNamespace(
        message_hub=hub, epoch=state["epoch"], iter=state["iter"], max_epochs=state["max_epochs"],
        max_iters=state["max_iters"], train_loop=train, _train_loop=train, val_loop=val, test_loop=val, model=None,
    )  # fmt: skip
    made = [getattr(processor, call)(runner, batch_idx, mode) for call, batch_idx, mode in case["calls"]]
    for (tag, text), expected in zip(made, case["expect"], strict=True):
        assert text == expected["text"]
        assert list(tag) == [name for name, _ in expected["tag"]]
        for name, value in expected["tag"]:
            assert tag[name] == pytest.approx(value, rel=1e-9, nan_ok=True), name


KINDS = {"parse_losses": parse_losses, "history_buffer": history_buffer, "log_processor": log_processor}


@pytest.mark.parametrize("case", [pytest.param(case, id=f"mmengine-logging-{case['id']}") for case in CASES])
def test_numbers_and_lines_are_the_recorded_ones(case: dict[str, Any]) -> None:
    assert case["kind"] in KINDS, f"a kind of case that nobody replays: {case['kind']}"
    if "error" in case["expect"]:
        with pytest.raises((AssertionError, TypeError, ValueError, KeyError)):
            KINDS[case["kind"]](case)
    else:
        KINDS[case["kind"]](case)
