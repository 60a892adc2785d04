"""Whole runs: the lines of their logs, the rows for pictures, and the files they leave."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import cases
from tests.golden.mmengine import toys

FULL = [case for case in cases("mmengine", "logging") if case.get("kind") == "full_run"]
TIMES = ("time", "data_time", "eta")
LOGGED = r"INFO - (Checkpoints will|Epoch\(|Iter\(|Exp name|Saving|The (best|previous))"


def _runner(folder: Path, config: dict[str, Any]) -> Any:
    given = dict(config)
    for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
        if name in given:
            dataset = toys.ToyData(given[name]["dataset"]["n"])
            given[name] = {**given[name], "dataset": dataset}
    for name in ("val_evaluator", "test_evaluator"):
        if name in given:
            given[name] = toys.ScriptMetric(given[name]["script"])
            given[name] = [given[name]]
    model = {"ToyNet": toys.ToyNet, "TwoPart": toys.TwoPart}[given.pop("model")["type"]]()
    return toys.runner(folder, model=model, log_level="INFO", **given)


@pytest.mark.parametrize("case", [pytest.param(case, id=f"mmengine-full_run-{case['id']}") for case in FULL])
def test_a_run_logs_what_was_recorded(case: dict[str, Any], tmp_path: Path) -> None:
    runner = _runner(tmp_path, case["config"])
    for verb in case.get("call", "train").split("+"):
        getattr(runner, verb)()
    expect, stamp = case["expect"], runner.timestamp
    assert set(expect) == {"files", "scalars", "log"}
    found = sorted(
        str(p.relative_to(tmp_path)).replace(stamp, "<timestamp>") for p in tmp_path.rglob("*") if p.is_file()
    )
    assert found == sorted(expect["files"])
    rows = [json.loads(line) for line in (tmp_path / stamp / "vis_data" / "scalars.json").read_text().splitlines()]
    assert len(rows) == len(expect["scalars"])
    for row, recorded in zip(rows, expect["scalars"], strict=True):
        assert list(row) == list(recorded)
        for key, value in recorded.items():
            assert value == "*" or row[key] == pytest.approx(value, rel=1e-5, nan_ok=True), key
    assert _lines(runner, tmp_path) == expect["log"]


def _lines(runner: Any, folder: Path) -> list[str]:
    text = (Path(runner.log_dir) / f"{runner.timestamp}.log").read_text()
    lines = [line.partition(" - mmengine - ")[2] for line in text.splitlines() if " - mmengine - " in line]
    for old, new in ((str(folder), "<work_dir>"), (runner.experiment_name, "<exp>")):
        lines = [line.replace(old, new) for line in lines]
    for name in TIMES:
        lines = [re.sub(rf"(?<=\b{name}: )\S+(?: days?, \S+)?", "*", line) for line in lines]
    return [line for line in lines if re.match(LOGGED, line)]
