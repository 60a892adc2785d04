"""Files that the original wrote: numpy scalars and objects of its classes inside, and still no code is run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from etude.errors import ResumeError
from tests.mmengine import toy

HISTORY = "mmengine.logging.history_buffer"


Record = type("HistoryBuffer", (), {"__doc__": "Pickles as the original's does."})


def history(values: list[float]) -> Any:
    made = Record()
    made.__dict__ = {
        "_max_length": 1000000,
        "_log_history": np.array(values),
        "_count_history": np.ones(len(values), dtype=np.int64),
        "_statistics_methods": {},
    }
    return made


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch) -> Any:
    """While a file is written, the class goes by its original name."""
    module = ModuleType(HISTORY)
    module.HistoryBuffer = Record  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, HISTORY, module)
    monkeypatch.setattr(Record, "__module__", HISTORY)
    return Record


def write_as_the_original(path: Path, content: dict[str, Any]) -> None:
    """Turn a file of ours into what the original would have written after the same epoch."""
    hub = content["message_hub"]
    hub["log_scalars"] = {key: history([0.1] * 4) for key in hub["log_scalars"]}
    hub["runtime_info"]["eta"] = np.float64(1.5)
    hub["runtime_info"]["best_score"] = np.float32(0.25)
    for group in content["optimizer"]["param_groups"]:
        group["lr"] = np.float64(group["lr"])
    for scheduler in content["param_schedulers"]:
        scheduler["_last_value"] = [np.float64(value) for value in scheduler["_last_value"]]
        scheduler.setdefault("milestones", Counter())
    torch.save(content, path)


def arguments(**more: Any) -> dict[str, Any]:
    scheduler = {"type": "MultiStepLR", "milestones": [1], "gamma": 0.5}
    return {"param_scheduler": scheduler, "train_dataloader": toy.loader(shuffle=True), **more}


def test_a_file_of_the_original_resumes_to_the_same_weights(tmp_path: Path, original: Any) -> None:
    whole = toy.make(tmp_path / "whole", **arguments())
    whole.train()
    file = tmp_path / "epoch_1.pth"
    write_as_the_original(file, torch.load(tmp_path / "whole" / "epoch_1.pth", weights_only=True))
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        torch.load(file)
    rest = toy.make(tmp_path / "rest", **arguments(resume=True, load_from=str(file)))
    rest.train()
    assert (rest.epoch, rest.iter) == (2, 8)
    assert torch.equal(rest.model.fc.weight, whole.model.fc.weight)
    assert len(rest.message_hub.get_scalar("train/loss")) == 8
    assert rest.message_hub.get_info("best_score") == 0.25
    saved = torch.load(tmp_path / "rest" / "epoch_2.pth", weights_only=True)
    assert type(saved["optimizer"]["param_groups"][0]["lr"]) is float


def test_code_in_a_file_is_refused(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",))

    torch.save({"state_dict": {}, "meta": {"epoch": 0, "iter": 0}, "x": Bomb()}, tmp_path / "bad.pth")
    with pytest.raises(ResumeError, match="refused"):
        toy.make(tmp_path, resume=True, load_from=str(tmp_path / "bad.pth")).train()
    assert not (tmp_path / "ran").exists()


def test_weights_alone_can_be_loaded_but_not_resumed(tmp_path: Path) -> None:
    state = {f"module.{key}": value + 1 for key, value in toy.Net().state_dict().items()}
    torch.save(state, tmp_path / "weights.pth")
    runner = toy.make(tmp_path, val=True, load_from=str(tmp_path / "weights.pth"))
    runner.val()
    assert torch.equal(runner.model.fc.bias, toy.Net().fc.bias + 1)
    with pytest.raises(ResumeError, match="weights only"):
        toy.make(tmp_path, load_from=str(tmp_path / "weights.pth"), resume=True).train()


def test_what_has_no_plain_form_is_named_when_it_is_saved(tmp_path: Path) -> None:
    from etude.errors import SaveError

    class Odd(toy.Hook):
        def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            checkpoint["mine"] = {"inner": [object()]}

    with pytest.raises(SaveError, match=r"mine\.inner\[0\]"):
        toy.make(tmp_path, custom_hooks=[Odd()]).train()
    assert not list(tmp_path.glob("*.pth"))


def test_a_moved_folder_resumes(tmp_path: Path) -> None:
    toy.make(tmp_path / "here", train_cfg={"by_epoch": True, "max_epochs": 1}).train()
    (tmp_path / "here").rename(tmp_path / "there")
    runner = toy.make(tmp_path / "there", resume=True)
    runner.train()
    assert runner.iter == 8 and len(runner.model.batches) == 4


def test_what_a_dead_writer_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    dead = tmp_path / ".epoch_1.pth.tmp-999999999-1"
    living = tmp_path / f".epoch_2.pth.tmp-{os.getpid()}-2"
    for path in (dead, living):
        path.write_bytes(b"half")
    toy.make(tmp_path).train()
    assert not dead.exists() and living.exists()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_damaged_newest_file_is_passed_over(tmp_path: Path, share: float) -> None:
    whole = toy.make(tmp_path, train_cfg={"by_epoch": True, "max_epochs": 3})
    whole.train()
    for name in ("epoch_3.pth", "epoch_2.pth"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: int(share * len(content))])
    runner = toy.make(tmp_path, train_cfg={"by_epoch": True, "max_epochs": 3}, resume=True)
    runner.train()
    assert len(runner.model.batches) == 8
    assert torch.equal(runner.model.fc.weight, whole.model.fc.weight)
    for path in tmp_path.glob("*.pth"):
        path.write_bytes(b"nothing")
    with pytest.raises(ResumeError):
        toy.make(tmp_path, resume=True).train()
