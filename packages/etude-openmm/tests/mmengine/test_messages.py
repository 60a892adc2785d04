"""The texts of errors and warnings that scripts and tests for MMEngine look for."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from tests.mmengine import toy  # isort: skip  (serves the names below)
from torch import nn

from mmengine._strategy import FSDPStrategy
from mmengine.dataset import BaseDataset, Compose, RepeatDataset
from mmengine.dist import cast_data_device
from mmengine.hooks import CheckpointHook, EarlyStoppingHook, LoggerHook, ParamSchedulerHook
from mmengine.logging import HistoryBuffer, MessageHub, MMLogger
from mmengine.model import ExponentialMovingAverage, ImgDataPreprocessor, merge_dict
from mmengine.optim import AmpOptimWrapper, ConstantLR, LinearLR, OneCycleLR, OptimWrapper
from mmengine.registry import PARAM_SCHEDULERS, TRANSFORMS
from mmengine.runner import FlexibleRunner, get_priority
from mmengine.utils import deprecated_api_warning


def _sgd() -> torch.optim.SGD:
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


@TRANSFORMS.register_module(force=True)
class NotCallable:
    pass


_PARTS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: OptimWrapper(_sgd(), clip_grad={"type": "norm"}), AssertionError, "`clip_grad` should contain other"),
    (lambda: AmpOptimWrapper(optimizer=_sgd(), loss_scale="x"), TypeError, "loss_scale must be of type float"),
    (lambda: AmpOptimWrapper(optimizer=_sgd(), dtype="x"), AssertionError, "dtype should be any of"),
    (lambda: ConstantLR(_sgd(), factor=2), ValueError, "Constant multiplicative factor should between 0 and 1"),
    (lambda: LinearLR(_sgd(), start_factor=2), ValueError, "Starting multiplicative factor should between 0 and 1"),
    (lambda: LinearLR(_sgd(), end_factor=2), ValueError, "Ending multiplicative factor should between 0 and 1"),
    (lambda: OneCycleLR(_sgd(), 0.1, total_steps=-1), ValueError, "Expected positive integer total_steps"),
    (lambda: OneCycleLR(_sgd(), 0.1, total_steps=5, pct_start=2), ValueError, "Expected float between 0 and 1"),
    (
        lambda: PARAM_SCHEDULERS.build(
            {"type": "LinearLR", "optimizer": _sgd(), "by_epoch": False, "convert_to_iter_based": True}
        ),
        AssertionError,
        "Only epoch-based parameter scheduler can be converted",
    ),
    (lambda: LoggerHook(interval="a"), TypeError, "interval must be an integer"),
    (lambda: LoggerHook(keep_local="a"), TypeError, "keep_local must be a boolean"),
    (lambda: LoggerHook(out_suffix=1), TypeError, "out_suffix should be a string or a sequence of string"),
    (lambda: CheckpointHook(save_best=["acc", "acc"]), AssertionError, "Find duplicate element"),
    (lambda: CheckpointHook(save_best=["auto", "acc"]), AssertionError, 'Only support one "auto"'),
    (lambda: CheckpointHook(save_best=["a", "b", "c"], rule=["less"] * 2), AssertionError, 'Number of "rule"'),
    (lambda: EarlyStoppingHook(monitor="x"), ValueError, "thus rule must be specified"),
    (lambda: Compose([{"type": "NotCallable"}]), TypeError, "transform should be a callable object"),
    (lambda: RepeatDataset(1, times=2), TypeError, "elements in datasets sequence should be config or"),
    (
        lambda: deprecated_api_warning({"old": "new"})(lambda new: new)(old=1, new=2),
        AssertionError,
        "The expected behavior is to replace the deprecated key `old`",
    ),
    (lambda: Compose(["a"]), TypeError, "transform must be a callable object or dict"),
    (lambda: merge_dict(1), AssertionError, "all arguments of merge_dict should be a dict"),
    (lambda: ImgDataPreprocessor()({"inputs": "text"}), TypeError, "Output of `cast_data` should be a dict"),
    (lambda: HistoryBuffer().current(), ValueError, "_log_history is an empty array"),
    (lambda: HistoryBuffer().statistics("x"), KeyError, "has not been registered in HistoryBuffer._statistics_methods"),
    (
        lambda: cast_data_device({torch.ones(1)}, torch.device("cpu"), out={torch.ones(1)}),
        TypeError,
        "out should not be a set",
    ),
    (lambda: FlexibleRunner(model=nn.Linear(1, 1), compile="yes"), TypeError, "compile should be a bool or dict"),
    (lambda: FSDPStrategy(state_dict_cfg="some"), ValueError, "FSDP only supports `full` and `local`"),
    (lambda: FSDPStrategy(state_dict_cfg=[]), TypeError, "state_dict_cfg should be a `str` or a `dict`"),
    (lambda: FSDPStrategy(skip_init_weights="yes"), TypeError, "skip_init_weights must be a boolean"),
    (lambda: get_priority([]), TypeError, "priority must be an integer or Priority enum value"),
]


@pytest.mark.parametrize(("make", "kind", "text"), _PARTS, ids=[text for _, _, text in _PARTS])
def test_a_mistake_is_told_in_the_words_that_tests_look_for(
    make: Callable[[], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        make()


def test_schedulers_of_a_wrong_kind_are_told_by_the_hook() -> None:
    with pytest.raises(TypeError, match=r"runner.param_schedulers should be list of ParamScheduler or a dict"):
        ParamSchedulerHook().after_train_epoch(MagicMock(param_schedulers=1))


def test_early_stopping_names_the_attribute_that_a_loop_lacks() -> None:
    with pytest.raises(AssertionError, match="`train_loop` should contain `stop_training`"):
        EarlyStoppingHook(monitor="acc").before_run(MagicMock(train_loop=object()))


def test_entries_of_a_dataset_that_are_no_dicts_are_told(tmp_path: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"metainfo": {}, "data_list": [{}]}')
    dataset = BaseDataset(ann_file=str(path), lazy_init=True)
    dataset.parse_data_info = lambda raw: [{}, "x"]  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="data_info must be list of dict"):
        dataset.load_data_list()


def test_a_model_without_a_step_is_told_for_what_it_is_needed(tmp_path: Any) -> None:
    class NoStep(nn.Module):
        def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Any]:
            return {}

    with pytest.raises(AssertionError, match="If you want to validate your model"):
        toy.make(tmp_path, val=True, model=NoStep()).train()
    with pytest.raises(AssertionError, match="If you want to train your model"):
        toy.make(tmp_path, model=nn.Linear(1, 1)).train()


def test_momentum_that_looks_turned_around_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    MMLogger.get_instance("momentum")
    ExponentialMovingAverage(nn.Linear(1, 1), momentum=0.9)
    assert "The value of momentum in EMA is usually a small number" in capsys.readouterr().out


def test_lines_are_plain_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    MMLogger("plain_lines").warning("one")
    monkeypatch.setenv("FORCE_COLOR", "1")
    MMLogger("coloured_lines").warning("two")
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("- mmengine - WARNING - one")
    assert "\x1b[" in second


def test_counts_stay_counts_in_a_history() -> None:
    hub = MessageHub("counts")
    hub.update_scalar("val/found", 3)
    hub.update_scalar("val/found", torch.tensor(4))
    assert type(hub.get_scalar("val/found").current()) is int
    assert hub.get_scalar("val/found").data[0].dtype == np.int64
    hub.update_scalar("val/found", 4.5)
    hub.update_scalar("val/found", 5)
    assert type(hub.get_scalar("val/found").current()) is float
    assert type(HistoryBuffer([1, 2], [1, 1]).max()) is int
    assert type(HistoryBuffer(torch.tensor([1.0]), [1]).max()) is float


def test_a_loader_that_begins_again_is_warned_of(tmp_path: Any) -> None:
    runner = toy.make(tmp_path, train_cfg={"by_epoch": False, "max_iters": 6})
    seen: list[logging.LogRecord] = []
    runner.logger.handlers.append(_Keeping(seen))
    runner.train()
    assert any("Reach the end of the dataloader" in record.getMessage() for record in seen)


class _Keeping(logging.Handler):
    def __init__(self, seen: list[logging.LogRecord]) -> None:
        super().__init__(logging.WARNING)
        self.seen = seen

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)
