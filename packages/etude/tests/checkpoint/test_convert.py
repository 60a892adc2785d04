"""Writing weights in the layouts of other systems, and averages of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from etude.checkpoint.manifest import Manifest, Stored, parse
from etude.checkpoint.snapshot import Arena
from etude.checkpoint.store import Store
from etude.checkpoint.tools import content
from etude.checkpoint.tools.convert import average, choose_layout, consolidate, convert
from etude.checkpoint.warm_start import read_weights
from etude.dist.layout.shards import Piece
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
        choose_layout("mean.pth", "mmcv", among=("safetensors", "state_dict"))


def test_only_native_checkpoints_in_pieces_are_put_together(source: str) -> None:
    torch.save({"w": torch.ones(1)}, "a.pth")
    with pytest.raises(UserError, match="is not an Étude checkpoint"):
        consolidate("a.pth", "whole")
    with pytest.raises(UserError, match="has whole tensors already"):
        consolidate(source, "whole")


def test_what_a_file_does_not_say_is_0() -> None:
    torch.save({"state_dict": {"w": torch.ones(1)}}, "bare.pth")
    convert("bare.pth", "a.pth", layout="mmcv")
    assert torch.load("a.pth", weights_only=True)["meta"] == {"epoch": 0, "iter": 0}
    path, _ = convert("bare.pth", "native", layout="etude")
    found = content.read(path)
    assert os.path.basename(path) == "weights-000000000" and (found.step, found.epoch) == (0, 0)
    convert("bare.pth", "a.safetensors")
    with safe_open("a.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "epoch": "0", "iter": "0"}


def test_a_conversion_takes_the_weights_at_a_key(source: str) -> None:
    torch.save({"state_dict": {"w": torch.ones(1)}, "ema": {"w": torch.zeros(1)}}, "two.pth")
    for layout, target in (("state_dict", "a.pth"), ("etude", "native"), ("dcp", "dcp")):
        path, _ = convert("two.pth", target, layout=layout, key="ema")
        assert content.read(path).weights()["w"].item() == 0


def test_pieces_of_several_ranks_are_put_together_under_the_same_name() -> None:
    whole = {"w": torch.arange(12.0).reshape(4, 3)}
    names = ("state.json", "model.safetensors", "model.rank-1.safetensors")
    pieces = [Piece(whole["w"][at : at + 2].clone(), (4, 3), (at, 0), saved_here=True) for at in (0, 2)]
    folder = Path("c/step-000000007")
    folder.mkdir(parents=True)
    for rank, piece in enumerate(pieces):
        for file in Arena(rank).take({"model": {"w": piece}}).files:
            (folder / file.name).write_bytes(b"".join(file.pieces))
    files = {name: (folder / name).read_bytes() for name in names}
    stored = {name: Stored(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
    manifest = Manifest(
        step=7, epoch=2, parts={"model": names[1]}, shards={"model": (names[2],)}, files=stored, world=2
    )
    (folder / "manifest.json").write_bytes(manifest.to_json())
    path = consolidate("c/step-000000007", "whole")
    assert path == "whole/step-000000007" and torch.equal(read_weights(path)["w"], whole["w"])
    found = parse(Path(path, "manifest.json").read_bytes())
    assert (found.step, found.epoch, found.world, found.shards) == (7, 2, 2, {})


def test_a_folder_for_torch_is_written_whole_or_not_at_all(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("empty").mkdir()
    assert convert(source, "empty", layout="dcp", optimizer=True) == ("empty", "dcp")
    assert content.read("empty").optimizer() is not None and content.read("empty").step == 3

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match=r"^b could not be written: .*No space left on device"):
        convert(source, "b", layout="dcp")
    assert sorted(os.listdir()) == ["c", "empty"]


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64, torch.complex64])
def test_a_mean_of_large_numbers_does_not_overflow(kind: torch.dtype) -> None:
    large = 60000.0 if kind is torch.float16 else 1e30
    for name in ("0.pth", "1.pth"):
        torch.save({"w": torch.tensor([large, 1.0]).to(kind)}, name)
    assert average(["0.pth", "1.pth"], "mean.safetensors") == 1
    mean = read_weights("mean.safetensors")["w"]
    assert mean.dtype is kind and torch.equal(mean, torch.tensor([large, 1.0]).to(kind))
