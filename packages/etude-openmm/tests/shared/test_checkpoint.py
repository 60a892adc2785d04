"""Loading what fits and telling the rest; files that are read as data and written whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.errors import OutOfScope, ResumeError, UserError
from etude_openmm.shared import state as state_functions
from etude_openmm.shared.live import checkpoint, checkpoint_v1
from etude_openmm.shared.live.loader import load_from_http

BOTH = [pytest.param(checkpoint, id="mmengine"), pytest.param(checkpoint_v1, id="mmcv1")]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.register_buffer("note", torch.ones(1))


def test_only_mmcv_saves_buffers_that_a_module_does_not_keep() -> None:
    net = Net()
    net.register_buffer("mean", torch.zeros(1), persistent=False)
    wrapped = nn.DataParallel(net)
    assert list(state_functions.get_state_dict(wrapped)) == list(net.state_dict())
    assert "mean" in state_functions.get_state_dict_v1(wrapped)


@pytest.mark.parametrize("kind", BOTH)
class TestBothFlavours:
    def test_a_state_goes_out_without_wrappers_and_in_again(self, kind: Any) -> None:
        wrapped = nn.DataParallel(Net())
        state = state_functions.get_state_dict(wrapped)
        assert "block.0.weight" in state
        other = Net()
        kind.load_state_dict(nn.DataParallel(other), state, strict=True)
        assert torch.equal(other.block[0].weight, wrapped.module.block[0].weight)
        assert state_functions.weights_to_cpu(state)._metadata == state._metadata

    def test_custom_schemes_read_where_they_say(self, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kind.CheckpointLoader, "_schemes", dict(kind.CheckpointLoader._schemes))

        @kind.CheckpointLoader.register_scheme(prefixes=["ftp://", "gopher://"])
        def load_from_ftp(filename: str, map_location: Any) -> Any:
            return {"state_dict": {"note": torch.full((1,), 5.0)}}

        net = Net()
        assert kind.load_checkpoint(net, "gopher://x")["state_dict"]
        assert net.note.item() == 5
        with pytest.raises(KeyError, match="force"):
            kind.CheckpointLoader.register_scheme("ftp://", load_from_ftp)
        kind.CheckpointLoader.register_scheme("ftp://", load_from_ftp, force=True)

    def test_model_zoos_are_out_of_scope_and_missing_files_are_told(self, kind: Any) -> None:
        with pytest.raises(OutOfScope, match="put the file at"):
            kind._load_checkpoint("open-mmlab://resnet50")
        with pytest.raises(FileNotFoundError, match="can not be found"):
            kind._load_checkpoint("nope.pth")

    def test_a_file_that_holds_code_is_refused(self, kind: Any, tmp_path: Path) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return (os.system, (f"touch {tmp_path}/ran",))

        torch.save({"state_dict": {}, "meta": Evil()}, tmp_path / "evil.pth")
        with pytest.raises(ResumeError):
            kind.load_checkpoint(Net(), str(tmp_path / "evil.pth"))
        assert not (tmp_path / "ran").exists()

    def test_a_prefix_cuts_out_a_part(self, kind: Any, tmp_path: Path) -> None:
        path = str(tmp_path / "c.pth")
        torch.save({"state_dict": {"backbone.a": torch.ones(1), "head.b": torch.ones(1)}}, path)
        assert list(kind._load_checkpoint_with_prefix("backbone", path)) == ["a"]
        with pytest.raises(AssertionError, match="backbone, head"):
            kind._load_checkpoint_with_prefix("neck", path)

    def test_keys_are_revised_in_turn(self, kind: Any, tmp_path: Path) -> None:
        path = str(tmp_path / "c.pth")
        torch.save({"x.y.note": torch.full((1,), 3.0)}, path)
        net = Net()
        kind.load_checkpoint(net, path, revise_keys=[(r"^x\.", ""), (r"^y\.", "")])
        assert net.note.item() == 3


def test_mmcv_saves_meta_weights_and_optimizers(tmp_path: Path) -> None:
    net, path = Net(), str(tmp_path / "deep" / "c.pth")
    net.CLASSES = ("a", "b")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    checkpoint_v1.save_checkpoint(net, path, optimizer, meta={"epoch": 3})
    read = checkpoint_v1._load_checkpoint(path)
    assert list(read) == ["meta", "state_dict", "optimizer"]
    assert read["meta"]["epoch"] == 3
    assert read["meta"]["CLASSES"] == ("a", "b")
    assert "note" in read["state_dict"]
    checkpoint_v1.save_checkpoint(net, path, {"one": optimizer})
    assert list(checkpoint_v1._load_checkpoint(path)["optimizer"]) == ["one"]
    with pytest.raises(TypeError):
        checkpoint_v1.save_checkpoint(net, path, meta=[1])  # type: ignore[arg-type]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "c.pth"
    checkpoint.save_checkpoint({"a": 1}, str(path))
    before = path.read_bytes()
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save_checkpoint({"a": lambda: 1}, str(path))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["c.pth"]


def test_the_latest_checkpoint_is_the_one_that_the_folder_names(tmp_path: Path) -> None:
    assert checkpoint.find_latest_checkpoint(str(tmp_path)) is None
    (tmp_path / "last_checkpoint").write_text("/x/epoch_3.pth")
    assert checkpoint.find_latest_checkpoint(str(tmp_path)) == "/x/epoch_3.pth"


def test_an_address_that_does_not_answer_is_an_error_that_says_where_to_put_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    place = tmp_path / "hub" / "checkpoints" / "resnet.pth"
    address = "http://127.0.0.1:1/resnet.pth"
    with pytest.raises(UserError, match=f"put it at {place}"):
        load_from_http(address)
    torch.save({"state_dict": {"a": torch.ones(1)}}, place)
    assert list(load_from_http(address)["state_dict"]) == ["a"]
