"""Averaged weights: what they are after each iteration, what validation sees, what a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import params
from tests.golden.mmengine import toys
from tests.golden.mmengine.toys import Hook


class Watch(Hook):
    """Notes model and average after every iteration."""

    priority = "LOWEST"

    def __init__(self, ema: Any) -> None:
        self.ema, self.source, self.average = ema, [], []

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.source.append(_state(runner.model))
        average = self.ema.ema_model
        self.average.append({**_state(average.module), "steps": int(average.steps)})


def _state(model: Any) -> dict[str, Any]:
    return {"w": model.w.tolist(), "stat": model.stat.item(), "count": int(model.count)}


@pytest.mark.parametrize("case", params("mmengine", "ema"))
def test_averages_are_the_recorded_ones(case: dict[str, Any], tmp_path: Path) -> None:
    by_epoch = case["loop"]["by_epoch"]

    def train() -> tuple[Any, Watch]:
        runner = toys.runner(
            tmp_path,
            model=toys.EmaNet(),
            train_dataloader=toys.loader(toys.ToyData(2 * case.get("iters_per_epoch", 4))),
            train_cfg=case["loop"],
            optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.05}},
            default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 1, "by_epoch": by_epoch}},
            custom_hooks=[case["ema"]],
            **toys.validation(case.get("metrics") or [{"acc": 0.5}], batches=case.get("val_batches", 1)),
        )
        watch = Watch(next(hook for hook in runner.hooks if type(hook).__name__ == "EMAHook"))
        runner.register_hook(watch)
        runner.train()
        return runner, watch

    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(Exception):
            train()
        return
    runner, watch = train()
    _assert_close(watch.source, expect["source"])
    _assert_close(watch.average, expect["ema"])
    _assert_close(runner.model.seen_by_val, expect["val_sees"])
    _assert_close(runner.model.w.tolist(), expect["final_model"])
    saved = runner.load_checkpoint(Path(tmp_path / "last_checkpoint").read_text())
    for part, state in expect["checkpoint"].items():
        _assert_close({key: value.tolist() for key, value in saved[part].items()}, state)


def _assert_close(actual: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            _assert_close(actual[key], expected[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            _assert_close(one, other)
    else:
        assert actual == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
