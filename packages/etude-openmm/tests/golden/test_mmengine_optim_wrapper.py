"""Updates: accumulation, clipping, and what is logged of gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import data, params
from tests.golden.mmengine import toys
from tests.golden.mmengine.toys import Hook

GIVEN = data("mmengine", "optim_wrapper").get("given", {})


class Watch(Hook):
    priority = "LOWEST"

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        lin = runner.model.lin
        self.rows.append(
            {
                "w": [*lin.weight[0].tolist(), lin.bias.item()],
                "loss": float(outputs["loss"]),
                "inner_count": runner.optim_wrapper.inner_count,
                "grad": _logged(runner.message_hub),
                "has_grad": lin.weight.grad is not None and bool(lin.weight.grad.abs().sum() > 0),
            }
        )


def _logged(hub: Any) -> dict[str, Any] | None:
    for key, history in hub.log_scalars.items():
        if key.startswith("train/grad"):
            return {"key": key, "n": len(history), "last": history.current()}
    return None


def _train(case: dict[str, Any], folder: Path) -> Watch:
    runner = toys.runner(
        folder,
        model=toys.RegNet(GIVEN["w"], GIVEN["b"]),
        train_dataloader=toys.loader(toys.RegData(GIVEN["x"], GIVEN["t"]), batch_size=1),
        train_cfg=case["loop"],
        optim_wrapper=case["optim_wrapper"],
    )
    watch = Watch()
    runner.register_hook(watch)
    runner.train()
    return watch


@pytest.mark.parametrize("case", params("mmengine", "optim_wrapper"))
def test_updates_are_the_recorded_ones(case: dict[str, Any], tmp_path: Path) -> None:
    assert case["kind"] == "update"
    expect = case["expect"]
    if case.get("quirk") and case["optim_wrapper"].get("type") == "AmpOptimWrapper":
        length = case["loop"].get("max_iters") or 5 * case["loop"]["max_epochs"]
        assert len(_train(case, tmp_path).rows) == length  # mixed precision works on the CPU here, in bfloat16
        return
    if "error" in expect:
        with pytest.raises(Exception):
            _train(case, tmp_path)
        return
    rows = _train(case, tmp_path).rows
    assert len(rows) == len(expect["rows"])
    for row, recorded in zip(rows, expect["rows"], strict=True):
        assert row["w"] == pytest.approx(recorded["w"], rel=1e-5, abs=1e-6, nan_ok=True)
        assert row["loss"] == pytest.approx(recorded["loss"], rel=1e-5, abs=1e-6, nan_ok=True)
        assert (row["inner_count"], row["has_grad"]) == (recorded["inner_count"], recorded["has_grad"])
        if recorded["grad"] is None:
            assert row["grad"] is None
        else:
            assert row["grad"]["last"] == pytest.approx(recorded["grad"]["last"], rel=1e-5, nan_ok=True)
            assert (row["grad"]["key"], row["grad"]["n"]) == (recorded["grad"]["key"], recorded["grad"]["n"])
