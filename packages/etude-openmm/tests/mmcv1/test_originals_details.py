"""Small things in which mmcv 1.7.2's own tests saw a difference."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import mmcv
import pytest
import torch
from mmcv.parallel import MODULE_WRAPPERS, is_module_wrapper
from mmcv.runner import EvalHook, save_checkpoint, set_random_seed
from torch import nn


def test_a_copy_of_a_config_shares_its_values() -> None:
    config = mmcv.Config({"a": {"b": 1}})
    other, apart = copy.copy(config), copy.deepcopy(config)
    other.new = 2
    assert config.new == 2
    assert "new" not in apart


def test_a_pickled_config_comes_back_as_a_config(tmp_path: Path) -> None:
    mmcv.dump(mmcv.Config({"a": {"b": 1}}), tmp_path / "config.pkl")
    found = mmcv.load(tmp_path / "config.pkl")
    assert isinstance(found, mmcv.Config) and found.a.b == 1


def test_a_seed_is_passed_on_to_processes_that_start_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    set_random_seed(3)
    assert os.environ["PYTHONHASHSEED"] == "3"


def test_a_registered_wrapper_that_is_no_module_is_saved_as_what_it_wraps(tmp_path: Path) -> None:
    class Holder:
        def __init__(self, module: nn.Module) -> None:
            self.module = module

    MODULE_WRAPPERS.register_module(module=Holder, force=True)
    held = Holder(nn.Linear(1, 1))
    assert is_module_wrapper(held) and not is_module_wrapper(held.module)
    save_checkpoint(held, str(tmp_path / "a.pth"))
    assert list(torch.load(tmp_path / "a.pth")["state_dict"]) == ["weight", "bias"]


def test_metric_names_of_an_evaluation_stay_as_they_were_given() -> None:
    loader: Any = torch.utils.data.DataLoader([1])
    hook = EvalHook(loader, save_best="abc", greater_keys="abc", less_keys=["loss"])
    assert (hook.greater_keys, hook.less_keys) == (("abc",), ["loss"])
