"""The hub, histories, the logger and log lines."""

from __future__ import annotations

import logging
import pickle
import re
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from etude.dialects import imports

imports.install()

from mmengine.logging import HistoryBuffer, MessageHub, MMLogger, print_log  # noqa: E402
from mmengine.runner import LogProcessor  # noqa: E402
from tests.mmengine import mistaken, toy  # noqa: E402

SHORT, LONG = r"\d{2}/\d{2} \d{2}:\d{2}:\d{2}", r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}"


# -- histories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_history_starts_from_any_sequence(kind: Any) -> None:
    buffer = HistoryBuffer(kind([1, 2, 3]), kind([1, 1, 2]), max_length=2)
    assert buffer.data[0].tolist() == [2, 3]
    with pytest.raises(AssertionError):
        HistoryBuffer(kind([1, 2]), kind([1]))


def test_a_history_takes_numbers_only() -> None:
    buffer = HistoryBuffer()
    with pytest.raises(ValueError):
        buffer.current()
    with pytest.raises(TypeError):
        buffer.update(torch.tensor(1.0))
    buffer.update(2, 4)
    assert (buffer.mean(), buffer.max(), buffer.min(), buffer.current()) == (0.5, 2, 2, 2)
    with pytest.raises(AssertionError):
        buffer.mean("a")
    with pytest.raises(KeyError):
        buffer.statistics("unknown")


def test_own_statistics_can_be_registered() -> None:
    @HistoryBuffer.register_statistics
    def spread_of_the_test(buffer: HistoryBuffer, window_size: int) -> float:
        return buffer.max(window_size) - buffer.min(window_size)

    assert HistoryBuffer([1, 5, 2], [1, 1, 1]).statistics("spread_of_the_test", window_size=2) == 3
    with pytest.raises(AssertionError):
        HistoryBuffer.register_statistics(spread_of_the_test)


def test_a_tensor_is_not_read_before_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = MessageHub.get_instance("lazy")
    reads: list[int] = []
    real = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("a tensor was read"))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: reads.append(self.numel()) or real(self))
    weight = torch.ones(1, requires_grad=True)
    for step in range(5):
        hub.update_scalar("train/loss", (weight * step).sum())
        hub.update_scalar("train/acc", torch.tensor([float(step)]))
    assert reads == []
    hub.settle()
    assert reads == [10]
    assert hub.get_scalar("train/loss").data[0].tolist() == [0, 1, 2, 3, 4]
    assert hub.get_scalar("train/acc").mean(2) == 3.5


def test_a_tensor_that_changes_later_keeps_its_old_value_in_the_history() -> None:
    hub, running = MessageHub.get_instance("aliased"), torch.zeros(())
    for _ in range(3):
        running += 1
        hub.update_scalar("train/running", running)
    assert hub.get_scalar("train/running").data[0].tolist() == [1, 2, 3]


def test_a_history_that_nobody_reads_settles_by_itself() -> None:
    buffer = HistoryBuffer(max_length=3000)
    for step in range(5000):
        buffer.append(float(step))
    assert len(buffer._waiting) < 4096
    assert (len(buffer), buffer.current(), buffer.min()) == (3000, 4999, 2000)


# -- the hub -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a", None, [1], {"value": 1}, torch.ones(2)])
def test_a_scalar_is_a_number(value: Any) -> None:
    with pytest.raises(AssertionError):
        MessageHub("numbers-only").update_scalar("a", value)


def test_a_hub_refuses_wrong_parts() -> None:
    with pytest.raises(TypeError, match="runtime_info"):
        MessageHub("hello", runtime_info=[1])
    with pytest.raises(AssertionError):
        MessageHub("hello", log_scalars=OrderedDict(a=1))
    with pytest.raises(AssertionError):
        MessageHub("hello", runtime_info=OrderedDict(iter=1), resumed_keys=OrderedDict(iters=False))


def test_scalars_come_as_numbers_arrays_tensors_and_dicts() -> None:
    hub = MessageHub.get_instance("scalars")
    given = {
        "loss": 1,
        "cls": torch.tensor(2),
        "bbox": np.array(3),
        "f": np.float32(4),
        "iou": {"value": 1, "count": 2},
    }
    hub.update_scalars(given)
    assert [hub.get_scalar(key).current() for key in ("loss", "cls", "bbox", "f")] == [1, 2, 3, 4]
    assert hub.get_scalar("iou").mean() == 0.5
    with pytest.raises(KeyError):
        hub.get_scalar("nothing")
    with pytest.raises(AssertionError):
        hub.update_scalars({"wrong": []})
    with pytest.raises(AssertionError):
        hub.update_scalars({"wrong": {"count": 1}})
    with pytest.raises(AssertionError):
        hub.update_scalar("wrong", torch.ones(2))
    with pytest.raises(AssertionError):
        hub.update_scalar("loss", 1, resumed=False)


def test_infos_are_values_and_come_out_as_copies() -> None:
    hub = MessageHub.get_instance("infos")
    hub.update_info_dict({"a": 2, "many": [1, 2]})
    hub.get_info("many").append(3)
    assert (hub.get_info("a"), hub.get_info("many"), hub.get_info("b", 7)) == (2, [1, 2], 7)
    assert hub.pop_info("a") == 2
    assert hub.pop_info("a", "gone") == "gone"


def test_what_is_marked_as_resumed_is_saved() -> None:
    hub = MessageHub.get_instance("saved")
    hub.update_scalar("loss", torch.tensor(0.5))
    hub.update_scalar("lr", 0.1, resumed=False)
    hub.update_info("iter", 1)
    hub.update_info("feat", [1, 2], resumed=False)
    state = hub.state_dict()
    assert (list(state["log_scalars"]), list(state["runtime_info"])) == (["loss"], ["iter"])
    for source in (state, hub, pickle.loads(pickle.dumps(hub)).state_dict()):
        other = MessageHub(f"loaded-{id(source)}")
        other.load_state_dict(source)
        assert other.get_scalar("loss").data == (np.array([0.5]), np.array([1]))
        assert other.get_info("iter") == 1
    with pytest.raises(AssertionError):
        hub.load_state_dict({"log_scalars": {}})


def test_the_newest_hub_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageHub, "_instance_dict", OrderedDict())
    first = MessageHub.get_current_instance()
    assert first.instance_name == "mmengine"
    assert MessageHub.get_instance("newer") is MessageHub.get_current_instance()


# -- the logger --------------------------------------------------------------------------------------------------------


def test_lines_of_the_console_and_of_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    logger = MMLogger.get_instance("lines", log_file=str(tmp_path / "run.log"))
    assert (logger.name, logger.instance_name, logger.parent) == ("mmengine", "lines", None)
    logger.info("welcome")
    logger.debug("not this")
    assert re.fullmatch(rf"{SHORT} - mmengine - (.*)INFO(.*) - welcome\n", capsys.readouterr().out)
    assert re.fullmatch(rf"{LONG} - mmengine - INFO - welcome\n", (tmp_path / "run.log").read_text())
    assert MMLogger.get_instance("lines") is logger
    assert logger.log_file == str(tmp_path / "run.log")


def test_errors_say_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    MMLogger.get_instance("errors").error("welcome")
    line = sys._getframe().f_lineno - 1
    name = sys._getframe().f_code.co_name
    found = capsys.readouterr().out
    assert re.fullmatch(rf"{SHORT} - mmengine - (.*)ERROR(.*) - {__file__} - {name} - {line} - welcome\n", found)


def test_equal_warnings_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    logger = MMLogger.get_instance("warnings")
    for _ in range(3):
        logger.warning("careful")
    assert capsys.readouterr().out.count("careful") == 1


def test_print_log_finds_its_logger(capsys: pytest.CaptureFixture[str]) -> None:
    print_log("plain", logger=None)
    assert capsys.readouterr().out == "plain\n"
    print_log("nothing", logger="silent")
    assert capsys.readouterr().out == ""
    logger = MMLogger.get_instance("found")
    for way in (logger, "found", "current"):
        print_log("welcome", logger=way)
        assert re.fullmatch(rf"{SHORT} - mmengine - (.*)INFO(.*) - welcome\n", capsys.readouterr().out)
    with pytest.raises(ValueError):
        print_log("welcome", logger="unknown")
    with pytest.raises(TypeError):
        print_log("welcome", logger=1)


def test_levels_apply_to_loggers_that_were_asked_before(capsys: pytest.CaptureFixture[str]) -> None:
    logger = MMLogger.get_instance("levels")
    logger.info("one")
    logger.setLevel("WARNING")
    logger.info("two")
    logger.setLevel(logging.INFO)
    logger.info("three")
    found = capsys.readouterr().out
    assert "one" in found and "two" not in found and "three" in found


def test_a_log_file_on_a_full_disk_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    logger = MMLogger.get_instance("full", log_file="/dev/full")
    logger.info("one")
    logger.info("two")
    found = capsys.readouterr()
    assert "one" in found.out and "two" in found.out
    assert found.err.count("/dev/full is given up") == 1


def test_a_rotating_file_can_be_asked_for(tmp_path: Path) -> None:
    options = {"type": "RotatingFileHandler", "maxBytes": 1024}
    logger = MMLogger.get_instance("rotating", log_file=tmp_path / "a.log", file_handler_cfg=options)
    assert type(logger.handlers[-1]).__name__ == "RotatingFileHandler"
    assert options["type"] == "RotatingFileHandler"
    with pytest.raises(ValueError):
        MMLogger.get_instance("wrong", log_file=tmp_path / "b.log", file_handler_cfg={"type": "Nothing"})


# -- log lines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"by_epoch": False, "custom_cfg": [{"data_src": "loss", "window_size": "epoch"}]},
        {"custom_cfg": [{"data_src": "loss", "log_name": "a"}, {"data_src": "acc", "log_name": "a"}]},
        {"custom_cfg": [{"data_src": "loss"}, {"data_src": "loss"}]},
        {"custom_cfg": [{"method_name": "mean"}]},
    ],
)
def test_custom_entries_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        LogProcessor(**wrong)


def test_custom_entries_add_and_replace_items() -> None:
    hub = MessageHub.get_instance("custom")
    for value in (4.0, 2.0, 6.0):
        hub.update_scalar("train/loss", value)
    entries = [
        {"data_src": "loss", "log_name": "best", "method_name": "min", "window_size": "global"},
        {"data_src": "loss", "method_name": "max", "window_size": "epoch"},
    ]
    loop = SimpleNamespace(dataloader=range(5))
    runner = SimpleNamespace(
        message_hub=hub, epoch=0, iter=2, max_epochs=2, max_iters=10, train_loop=loop, _train_loop=loop, model=None
    )
    for hierarchy, prefix in ((False, ""), (True, "train/")):
        tag, text = LogProcessor(custom_cfg=entries, log_with_hierarchy=hierarchy).get_log_after_iter(
            runner, 1, "train"
        )
        assert (tag[f"{prefix}best"], tag[f"{prefix}loss"]) == (2.0, 6.0)
        assert text == "Epoch(train) [1][2/5]    loss: 6.0000  best: 2.0000"


def test_metrics_that_are_no_numbers_are_shown_after_a_test() -> None:
    hub = MessageHub.get_instance("non-scalar")
    hub.update_scalar("test/acc", 0.5)
    hub.update_info("test/per_class", {"a": 1})
    runner = SimpleNamespace(message_hub=hub, iter=0, test_loop=SimpleNamespace(dataloader=range(3)), _train_loop=None)
    tag, text = LogProcessor().get_log_after_epoch(runner, 3, "test", with_non_scalar=True)
    assert tag == {"acc": 0.5, "per_class": {"a": 1}}
    assert text == "Epoch(test) [3/3]    acc: 0.5000  per_class: {'a': 1}"


def test_a_loss_that_is_not_finite_is_warned_of_once_with_the_way_back(tmp_path: Path) -> None:
    saving = {"checkpoint": {"type": "CheckpointHook", "interval": 1, "max_keep_ckpts": 3}}
    lines = {"logger": {"type": "LoggerHook", "interval": 4}}
    options: dict[str, Any] = {"log_level": "INFO", "train_cfg": {"by_epoch": True, "max_epochs": 4}}
    model = mistaken.WrongNet("nan", since=9)
    toy.make(tmp_path, model=model, default_hooks=saving | lines, **options).train()
    said = [line for line in _log(tmp_path).splitlines() if "is nan" in line]
    assert len(said) == 1 and "WARNING - loss is nan, for the first time at iteration 10." in said[0]
    newest = f"The newest checkpoint from before is {tmp_path}/epoch_2.pth (iteration 8), which max_keep_ckpts=3 will"
    assert newest in said[0] and f"Ctrl-C, and resume from there with --resume {tmp_path}/epoch_2.pth" in said[0]


def test_a_loss_that_never_was_finite_has_no_way_back(tmp_path: Path) -> None:
    toy.make(tmp_path, model=mistaken.WrongNet("nan"), log_level="INFO").train()
    assert "at iteration 1. MMEngine continues to train and saves the result. There is no" in _log(tmp_path)


def _log(folder: Path) -> str:
    return next(folder.glob("*/*.log")).read_text()
