"""Small things in which MMEngine 0.10.7's own tests saw a difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.cli import main

from tests.mmengine import toy  # isort: skip  (serves the names below)
from mmengine.fileio import BaseStorageBackend, LmdbBackend
from mmengine.hooks import CheckpointHook
from mmengine.logging import HistoryBuffer, MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import OPTIMIZERS, DefaultScope, init_default_scope

HUES = """
import numpy as np
import torch
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS


@MODELS.register_module()
class HueNet(BaseModel):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 1)

    def forward(self, inputs, mode="tensor"):
        return {"loss": self.fc(inputs).sum()}


@DATASETS.register_module()
class Hues(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"inputs": np.uint8(-57) * torch.ones(2)}
"""
HUE_CONFIG = """
custom_imports = dict(imports=["huesWORKERS"])
model = dict(type="HueNet")
train_dataloader = dict(
    batch_size=2, num_workers=WORKERS, sampler=dict(type="DefaultSampler", shuffle=False), dataset=dict(type="Hues")
)
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.1))
train_cfg = dict(by_epoch=True, max_epochs=1)
"""


@pytest.mark.parametrize(
    ("length", "epochs", "iters"),
    [({"by_epoch": True, "max_epochs": 3}, 3, 12), ({"by_epoch": False, "max_iters": 7}, 1, 7)],
)
def test_the_length_of_a_training_is_known_before_it_begins(
    tmp_path: Path, length: dict[str, Any], epochs: int, iters: int
) -> None:
    runner = toy.make(tmp_path, train_cfg=length)
    assert (runner.max_epochs, runner.max_iters, runner.epoch, runner.iter) == (epochs, iters, 0, 0)


def test_a_runner_that_does_not_train_has_no_length(tmp_path: Path) -> None:
    runner = toy.make(tmp_path, train_cfg=None, train_dataloader=None, optim_wrapper=None)
    assert (runner.max_epochs, runner.max_iters) == (0, 0)


@pytest.mark.parametrize("more", [{}, {"paramwise_cfg": {"bias_lr_mult": 2.0}}])
def test_an_optimizer_may_call_its_parameters_as_it_likes(more: dict[str, Any]) -> None:
    class TakesModelParams(torch.optim.SGD):
        def __init__(self, model_params: Any, lr: float = 0.1) -> None:
            super().__init__(model_params, lr)

    OPTIMIZERS.register_module(module=TakesModelParams, force=True)
    net = toy.Net()
    for kind in ("TakesModelParams", TakesModelParams):
        wrapper = build_optim_wrapper(net, {"optimizer": {"type": kind, "lr": 0.2}, **more})
        assert isinstance(wrapper.optimizer, TakesModelParams)
        assert {id(p) for group in wrapper.optimizer.param_groups for p in group["params"]} == set(
            map(id, net.parameters())
        )


def test_a_history_of_two_dimensions_is_refused_with_the_reason() -> None:
    with pytest.raises(TypeError, match="one number per entry"):
        HistoryBuffer(np.ones((2, 2)), np.ones(2))


def test_a_storage_backend_must_read_bytes_and_text() -> None:
    class Half(BaseStorageBackend):
        def get(self, filepath: Any) -> bytes:
            return b""

    with pytest.raises(TypeError, match="get_text"):
        Half()
    assert issubclass(LmdbBackend, BaseStorageBackend)


def test_names_of_metrics_stay_the_kind_of_sequence_that_was_given() -> None:
    hook = CheckpointHook(save_best="abc", greater_keys="abc", less_keys=["loss"])
    assert (hook.greater_keys, hook.less_keys) == (("abc",), ["loss"])


def test_a_changed_default_scope_is_a_warning_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    try:
        for scope in ("first", "second", "first"):
            init_default_scope(scope)
    finally:
        logger.removeHandler(caplog.handler)
    assert DefaultScope.get_current_instance().scope_name == "first"
    [record] = [one for one in caplog.records if "default scope" in one.getMessage()]
    assert record.levelname == "WARNING" and '"second" is not "first"' in record.getMessage()


@pytest.mark.parametrize("workers", [0, 1])
def test_what_numpy_2_refuses_in_a_transform_is_reported_with_its_line_and_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], workers: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"hues{workers}.py").write_text(HUES)
    (tmp_path / "config.py").write_text(HUE_CONFIG.replace("WORKERS", str(workers)))
    assert main(["train", "config.py", "--work-dir", "out"]) == 3
    said = capfd.readouterr().err
    assert f"hues{workers}.py:24: OverflowError: Python integer -57 out of bounds for uint8" in said, said
    assert "pip install 'numpy<2'" in said and "fault of the engine" not in said
