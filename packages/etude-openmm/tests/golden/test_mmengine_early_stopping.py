"""When early stopping ends a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import params
from tests.golden.mmengine import toys


@pytest.mark.parametrize("case", params("mmengine", "early_stopping"))
def test_a_run_ends_after_the_recorded_epoch(case: dict[str, Any], tmp_path: Path) -> None:
    def train() -> Any:
        runner = toys.runner(
            tmp_path,
            model=toys.ToyNet(),
            train_dataloader=toys.loader(toys.ToyData(2 * case.get("iters_per_epoch", 1))),
            train_cfg={"by_epoch": True, "max_epochs": case["max_epochs"]},
            optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.01}},
            custom_hooks=[{"type": "EarlyStoppingHook", **case["hook"]}],
            **(toys.validation(case["metrics"]) if case.get("metrics") else {}),
        )
        runner.train()
        return runner

    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(Exception):
            train()
        return
    runner = train()
    hook = next(hook for hook in runner.hooks if type(hook).__name__ == "EarlyStoppingHook")
    assert runner.epoch == expect["stopped_after_epoch"]
    assert runner.train_loop.stop_training == expect["early"]
    assert hook.wait_count == expect["wait_count"]
    assert hook.best_score == pytest.approx(expect["best_score"], nan_ok=True)
