"""Which files a run leaves, and what is in them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.goldens import equal, options_for, params
from tests.golden.mmengine import toys

from mmengine.hooks import CheckpointHook  # isort: skip  # served by toys' import

META = {"classes": ["a", "b"]}


def _run(folder: Path, case: dict[str, Any]) -> Any:
    setup = case.get("setup", {})
    loop = dict(case.get("loop") or {"by_epoch": True, "max_epochs": setup["max_epochs"]})
    arguments: dict[str, Any] = {}
    if case.get("metrics"):
        arguments = toys.validation(case["metrics"], prefix=case.get("metric_prefix"))
        loop["val_interval"] = case.get("val_interval", 1)
    batches = case.get("iters_per_epoch") or setup["iters_per_epoch"]
    return toys.runner(
        folder,
        model=toys.ToyNet(),
        train_dataloader=toys.loader(toys.ToyData(2 * batches, metainfo=META)),
        train_cfg=loop,
        optim_wrapper=setup.get("optim_wrapper", {"optimizer": {"type": "SGD", "lr": 0.01, "momentum": 0.9}}),
        param_scheduler=setup.get("param_scheduler", [{"type": "StepLR", "step_size": 2}]),
        default_hooks={"checkpoint": case.get("checkpoint") or _saving(setup)},
        custom_hooks=setup.get("custom_hooks"),
        **arguments,
    )


@pytest.mark.parametrize("case", params("mmengine", "checkpoint"))
def test_a_run_leaves_the_recorded_files(case: dict[str, Any], tmp_path: Path) -> None:
    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(Exception):
            _run(tmp_path, case).train()
        assert sorted(_names(tmp_path)) == sorted(expect["files"])
        return
    runner = _run(tmp_path, case)
    runner.train()
    if "layout" in expect:
        newest = Path(tmp_path / "last_checkpoint").read_text()
        assert _layout(torch.load(newest, weights_only=True)) == _as_written(expect["layout"])
        return
    newest = tmp_path / "last_checkpoint"
    assert (os.path.basename(newest.read_text()) if newest.exists() else None) == expect["last_checkpoint"]
    assert equal(_hub(runner.message_hub.runtime_info, expect["hub"]), expect["hub"])
    named = {re.sub(r"-[0-9a-f]{8}\.pth", "-<sha8>.pth", name): name for name in _names(tmp_path)}
    assert sorted(named) == sorted(expect["files"])
    for name, recorded in expect["files"].items():
        content = torch.load(tmp_path / named[name], weights_only=True)
        assert sorted(content) == recorded["keys"]
        assert {key: content["meta"][key] for key in recorded["meta"]} == recorded["meta"]
        if "hub" in recorded:
            infos = content["message_hub"]["runtime_info"]
            assert equal(_hub(infos, recorded["hub"]), recorded["hub"])
            strange = {"best_score", "best_ckpt", "keep_ckpt_ids", "last_ckpt"} - set(recorded["hub"])
            assert not strange & set(infos)
        if "n_schedulers" in recorded:
            assert len(content["param_schedulers"]) == recorded["n_schedulers"]


def _saving(setup: dict[str, Any]) -> dict[str, Any]:
    """The hook that saves: what a setup says about its arguments, in one mapping or one by one."""
    return {
        "type": "CheckpointHook",
        "interval": 1,
        **setup.get("checkpoint", {}),
        **options_for(CheckpointHook, setup),
    }


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.pth")]


def _hub(infos: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    found = {key: infos.get(key) for key in wanted}
    return {key: os.path.basename(value) if isinstance(value, str) else value for key, value in found.items()}


def _layout(value: Any) -> Any:
    """Types of everything; numbers of schedulers by value."""
    named = {key: _types(item) for key, item in value.items()}
    assert "shares" in named["meta"].pop("etude")  # what the original does not save
    if "param_schedulers" in value:
        named["param_schedulers"] = [_rounded(state) for state in value["param_schedulers"]]
    named["message_hub"]["resumed_keys"] = dict(value["message_hub"]["resumed_keys"])
    for key, history in value["message_hub"]["log_scalars"].items():
        assert set(history) == {"_log_history", "_count_history", "_max_length"}
        named["message_hub"]["log_scalars"][key] = "HistoryBuffer"
    return named


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _types(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_types(item) for item in value]
    if isinstance(value, torch.Tensor):
        return f"Tensor{list(value.shape)}:{str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.9e}") if isinstance(value, float) else value


def _as_written(layout: dict[str, Any]) -> dict[str, Any]:
    """The recorded layout with numpy's numbers as Python's: files hold plain types here."""
    made = {key: _plain(value) for key, value in layout.items()}
    if "param_schedulers" in layout:
        made["param_schedulers"] = [_rounded(state) for state in layout["param_schedulers"]]
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {"float64": "float", "float32": "float", "int64": "int"}.get(value, value)
