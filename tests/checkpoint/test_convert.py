"""Writing weights in the layouts of other systems, and averages of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.store import Store
from etude.checkpoint.tools import content
from etude.checkpoint.tools.convert import average, choose_layout, consolidate, convert
from etude.checkpoint.warm_start import read_weights
from etude.errors import ConfigError, SaveError, UserError

from .conftest import small_state


@pytest.fixture
def source() -> str:
    store = Store("c")
    store.save(small_state(3) | {"counters": {"step": 3, "epoch": 1}}, step=3, epoch=1)
    store.close()
    return "c/step-000000003"


@pytest.mark.parametrize(
    ("target", "layout", "chosen"),
    [
        ("a.safetensors", "", "safetensors"), ("a.PTH", "", "state_dict"), ("a.pth", "mmcv", "mmcv"), ("a", "mmcv", "mmcv"),
        ("a", "dcp", "dcp"), ("folder", "etude", "etude"), ("a.safetensors", "safetensors", "safetensors"),
    ],
)  # fmt: skip
def test_the_layout_is_what_you_ask_for_or_what_the_ending_says(target: str, layout: str, chosen: str) -> None:
    Path("folder").mkdir()
    assert choose_layout(target, layout) == chosen


@pytest.mark.parametrize(
    ("target", "layout", "message"),
    [
        ("a.pht", "", r"use \.pth, or pass --to"), ("a", "", r"use \.safetensors or \.pth"),
        ("a.pth", "mmcv2", "no layout is called 'mmcv2'"), ("full", "dcp", "new or empty"), ("s3://b/a", "dcp", "local disk"),
        ("full", "mmcv", "is a folder; name the file to write, as full/model.pth"),
        ("a.pth", "etude", r"leave the ending \.pth out"), ("a.pth", "dcp", r"leave the ending \.pth out"),
        ("a.pth", "safetensors", r"looks like state_dict, .*use the ending \.safetensors"),
        ("a.safetensors", "mmcv", r"looks like safetensors, but --to says mmcv; use the ending \.pth"),
    ],
)  # fmt: skip
def test_a_name_that_contradicts_its_layout_is_refused(target: str, layout: str, message: str) -> None:
    Path("full").mkdir()
    Path("full/file").touch()
    with pytest.raises((UserError, ConfigError), match=message):
        choose_layout(target, layout)


@pytest.mark.parametrize("layout", ["mmcv", "mmengine", "etude"])
def test_a_converted_checkpoint_has_weights_and_if_asked_the_optimizer(source: str, layout: str) -> None:
    for optimizer in (False, True):
        target, chosen = convert(source, f"to-{optimizer}", layout=layout, optimizer=optimizer)
        found = content.read(target)
        assert chosen == layout and torch.equal(found.weights()["w"], torch.full((4, 3), 3.0))
        assert (found.optimizer() is not None) == optimizer
        assert (found.step, found.epoch) == (3, 1)
        assert not [name for name in os.listdir() if ".tmp-" in name]


def test_a_file_for_weights_alone_takes_no_optimizer_and_says_what_does(source: str) -> None:
    with pytest.raises(UserError, match="state_dict holds weights alone; --optimizer goes with --to mmcv, "):
        convert(source, "a.pth", optimizer=True)
    torch.save({"w": torch.ones(1)}, "bare.pth")
    with pytest.raises(ConfigError, match="bare.pth has no optimizer state to convert"):
        convert("bare.pth", "a.pth", layout="mmcv", optimizer=True)
    plain = torch.load((convert(source, "a.pth"), "a.pth")[1], weights_only=True)
    assert set(plain) == {"w", "b"}
    hub = torch.load((convert(source, "b.pth", layout="mmengine"), "b.pth")[1], weights_only=True)
    old = torch.load((convert(source, "c.pth", layout="mmcv"), "c.pth")[1], weights_only=True)
    assert set(hub) == {"meta", "state_dict", "message_hub"} and set(old) == {"meta", "state_dict"}
    assert old["meta"] == {"epoch": 1, "iter": 3}


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UserError, match="there is no folder .*none to write a.pth to"):
        convert("missing", "none/a.pth")
    Path("file").touch()
    with pytest.raises(UserError, match="file is a file; --to etude writes a folder"):
        convert("missing", "file", layout="etude")
    torch.save({"w": torch.ones(1, dtype=torch.complex32)}, "a.pth")
    with pytest.raises(UserError, match="w: safetensors has no complex32; a .pth file has"):
        convert("a.pth", "b.safetensors")


def test_an_error_of_the_disk_names_the_target(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match=r"^a\.pth could not be written: No space left on device$"):
        convert(source, "a.pth")


def test_an_average_keeps_types_and_takes_counters_from_the_last() -> None:
    for number, value in enumerate((1.0, 2.0, 6.0)):
        weights = {"w": torch.tensor([value, 0.0], dtype=torch.float16), "z": torch.tensor([1j * value])}
        torch.save(weights | {"seen": torch.tensor(number)}, f"{number}.pth")
    assert average(["0.pth", "1.pth", "2.pth"], "mean.pth") == 2
    mean = read_weights("mean.pth")
    assert mean["w"].tolist() == [3.0, 0.0] and mean["w"].dtype is torch.float16
    assert mean["z"].tolist() == [3j] and mean["seen"] == 2
    average(["0.pth", "1.pth"], "mean.pth")
    assert read_weights("mean.pth")["w"].tolist() == [1.5, 0.0]
    with pytest.raises(UserError, match="at least two"):
        average(["0.pth"], "mean.pth")
    torch.save({"other": torch.ones(1)}, "3.pth")
    with pytest.raises(ConfigError, match="^3.pth has other weights than 0.pth\n"):
        average(["0.pth", "3.pth"], "mean.pth")
    with pytest.raises(ConfigError, match="no layout is called"):
        choose_layout("mean.pth", "mmcv", choices=("safetensors", "state_dict"))


def test_only_native_checkpoints_in_pieces_are_put_together(source: str) -> None:
    torch.save({"w": torch.ones(1)}, "a.pth")
    with pytest.raises(UserError, match="is not an Étude checkpoint"):
        consolidate("a.pth", "whole")
    with pytest.raises(UserError, match="has whole tensors already"):
        consolidate(source, "whole")
