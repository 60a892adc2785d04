from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from etude.checkpoint import warm_start
from etude.checkpoint.formats import sharded
from etude.cli import main
from etude.errors import ResumeError


def state() -> dict[str, Any]:
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 5,
        "names": ["a", "b"],
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        "half": torch.ones(3, dtype=torch.bfloat16),
    }


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    content = state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(content, checkpoint_id=tmp_path / "dcp")
    return tmp_path / "dcp", content


def test_such_a_folder_is_put_together_again(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, content = saved
    got = sharded.read(str(folder))
    assert got["step"] == 5 and got["names"] == ["a", "b"] and got["optimizer"]["param_groups"][0]["lr"] == 1e-3
    for name in ("scalar", "empty", "half"):
        assert torch.equal(got[name], content[name]) and got[name].dtype == content[name].dtype
    assert all(torch.equal(got["model"][name], value) for name, value in content["model"].items())


def test_it_starts_a_model_and_is_known_to_the_tools(
    saved: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, content = saved
    fresh = torch.nn.Linear(3, 4)
    assert warm_start.init_from(fresh, folder).exact and torch.equal(fresh.weight, content["model"]["weight"])
    for words in (["ls"], ["verify"], ["show"]):
        assert main(["ckpt", *words, str(folder)]) == 0
    assert main(["ckpt", "convert", str(folder), str(folder.parent / "w.pth")]) == 0
    assert main(["ckpt", "diff", str(folder), str(folder.parent / "w.pth")]) == 0
    assert "the same in what both have: model" in capsys.readouterr().out


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def test_a_hostile_metadata_or_piece_is_refused_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".metadata").write_bytes(pickle.dumps(Hostile(marker)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": {"w": torch.ones(2)}, "extra": Hostile(marker)}, checkpoint_id=tmp_path / "b")
    for folder in (tmp_path / "a", tmp_path / "b"):
        for words in (["show", folder], ["verify", folder], ["convert", folder, tmp_path / "w.pth"], ["ls", folder]):
            code = main(["ckpt", *map(str, words)])
            said = "".join(capsys.readouterr())
            assert code == (0 if words[0] == "ls" else 7) and not marker.exists()
            assert "refused: global os.system" in said and "nothing in it was run" in said
        with pytest.raises(ResumeError, match="refused"):
            warm_start.init_from(torch.nn.Linear(1, 2), folder)
    assert not marker.exists()


def test_damage_is_said_and_paths_do_not_lead_out(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = saved
    piece = folder / "__0_0.distcp"
    whole = piece.read_bytes()
    piece.write_bytes(whole[:-3000])
    with pytest.raises(ResumeError, match=r"cut short|damaged|would take"):
        sharded.read(str(folder))
    piece.unlink()
    with pytest.raises(ResumeError):
        sharded.read(str(folder))
    piece.write_bytes(whole)
    metadata = folder / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"__0_0.distcp", b"../_0.distcp"))
    with pytest.raises(ResumeError, match="a file outside of it"):
        sharded.read(str(folder))
    metadata.write_bytes(b"\x80\x04N.")
    with pytest.raises(ResumeError, match="not one of torch's"):
        sharded.read(str(folder))


def test_a_run_does_not_go_on_from_it_and_says_what_can_be_done(
    saved: tuple[Path, dict[str, Any]], workdir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from tests.cli.commands import CONFIG

    (workdir / "c.yaml").write_text(CONFIG)
    marker = workdir / "marker"
    (workdir / "evil").mkdir()
    (workdir / "evil" / ".metadata").write_bytes(pickle.dumps(Hostile(marker)))
    for folder in (str(saved[0]), "evil"):
        assert main(["train", "c.yaml", "--resume", folder]) == 7
        said = capfd.readouterr().err
        assert "is not an Étude checkpoint" in said and "`init_from: " in said
    assert main(["train", "c.yaml", "+init_from=evil"]) == 7
    assert "refused: global os.system" in capfd.readouterr().err
    assert not marker.exists() and not (workdir / "runs").exists()


def test_scripts_of_other_systems_are_told_how_to_make_a_file_of_it(tmp_path: Path) -> None:
    from etude_openmm.shared.live.loader import load_from_local

    marker = tmp_path / "marker"
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / ".metadata").write_bytes(pickle.dumps(Hostile(marker)))
    with pytest.raises(ResumeError, match=r"a folder of torch\.distributed\.checkpoint.*`etude ckpt convert`"):
        load_from_local(str(tmp_path / "evil"))
    assert not marker.exists()


def test_a_folder_that_is_written_is_read_by_torch_itself_and_back(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = state()
    torch.save(
        {"state_dict": content["model"], "optimizer": content["optimizer"], "meta": {"iter": 5, "epoch": 2}}, "a.pth"
    )
    assert main(["ckpt", "convert", "a.pth", "out", "--to", "dcp", "--optimizer"]) == 0
    fresh = {"model": torch.nn.Linear(3, 4).state_dict(), "step": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(fresh, checkpoint_id="out")
        dcp_to_torch_save("out", "b.pth")
    assert fresh["step"] == 5 and all(
        torch.equal(fresh["model"][name], value) for name, value in content["model"].items()
    )
    assert torch.equal(torch.load("b.pth")["model"]["weight"], content["model"]["weight"])
    assert main(["ckpt", "convert", "out", "c.pth", "--to", "mmcv", "--optimizer"]) == 0
    assert main(["ckpt", "diff", "a.pth", "c.pth"]) == 0, capsys.readouterr().out
    torch.optim.AdamW(torch.nn.Linear(3, 4).parameters()).load_state_dict(torch.load("c.pth")["optimizer"])


def test_where_such_a_folder_cannot_be_written_is_a_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.save(torch.nn.Linear(3, 4).state_dict(), "a.pth")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    for target, words in (("full", "new or empty"), ("b.pth", "leave the ending"), ("none/out", "no folder")):
        assert main(["ckpt", "convert", "a.pth", target, "--to", "dcp"]) == 2
        assert words in capsys.readouterr().err
    assert main(["ckpt", "consolidate", "a.pth", "-o", "whole"]) == 2
    assert "not an Étude checkpoint" in capsys.readouterr().err
