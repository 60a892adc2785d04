from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint import foreign
from etude.checkpoint.store import Store
from etude.cli import main
from tests.checkpoint.conftest import small_state

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def etude(capsys: Any) -> Run:
    def call(*words: Any) -> tuple[int, str, str]:
        code = main(["ckpt", *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    store = Store(tmp_path / "run" / "checkpoints")
    for step in (1, 2, 3):
        store.save(small_state(step), step=step, epoch=step // 2, metrics={"accuracy": [0.0, 0.9, 0.5, 0.1][step]})
    store.close()
    return tmp_path / "run"


def test_ls_shows_a_line_per_checkpoint(etude: Run, run_folder: Path) -> None:
    code, out, _ = etude("ls", run_folder)
    lines = out.splitlines()
    assert code == 0 and lines[0].split() == ["name", "step", "epoch", "size", "saved", "metrics"]
    assert lines[1].split()[:3] == ["step-000000001", "1", "0"] and lines[1].endswith("accuracy 0.9")
    assert etude("ls", run_folder / "checkpoints")[1] == out


def test_show_lists_values_of_native_and_foreign_files(etude: Run, run_folder: Path, tmp_path: Path) -> None:
    _, out, _ = etude("show", run_folder / "checkpoints" / "step-000000002")
    assert "model.w" in out and "float32 4×3  2 … 2" in out and "optimizer.param_groups.0.lr" in out
    torch.save({"state_dict": {"a": torch.ones(2)}, "meta": {"epoch": 3}}, tmp_path / "x.pth")
    assert "state_dict.a" in etude("show", tmp_path / "x.pth")[1]


def test_verify_names_the_damaged_one_and_exits_7(etude: Run, run_folder: Path) -> None:
    assert etude("verify", run_folder)[0] == 0
    victim = run_folder / "checkpoints" / "step-000000002" / "model.safetensors"
    victim.write_bytes(victim.read_bytes()[:-1] + b"\x01")
    code, out, _ = etude("verify", run_folder)
    assert code == 7 and "step-000000002  checksum of model.safetensors differs" in out and "step-000000003  ok" in out


def test_diff_tells_what_differs(etude: Run, run_folder: Path) -> None:
    folder = run_folder / "checkpoints"
    assert etude("diff", folder / "step-000000001", folder / "step-000000001")[:2] == (0, "the same\n")
    code, out, _ = etude("diff", folder / "step-000000001", folder / "step-000000003")
    assert code == 1 and "model.w" in out and "largest difference 2" in out and "counters.step" in out
    assert "model.b" not in out


@pytest.mark.parametrize("layout", ["safetensors", "state_dict", "mmcv", "mmengine"])
def test_weights_go_to_every_layout_and_back(etude: Run, run_folder: Path, tmp_path: Path, layout: str) -> None:
    source = run_folder / "checkpoints" / "step-000000002"
    code, out, _ = etude("convert", source, tmp_path / "file", "--to", layout)
    assert code == 0 and layout in out
    content = foreign.read(tmp_path / "file")
    weights = content["state_dict"] if layout.startswith("mm") else content
    assert torch.equal(weights["w"], torch.full((4, 3), 2.0))
    if layout.startswith("mm"):
        assert content["meta"] == {"epoch": 0, "iter": 2}
    assert etude("convert", tmp_path / "file", tmp_path / "back.safetensors")[0] == 0
    assert torch.equal(foreign.read(tmp_path / "back.safetensors")["w"], torch.full((4, 3), 2.0))
    assert torch.load(tmp_path / "file", weights_only=True) if layout != "safetensors" else True


def test_an_optimizer_goes_along_on_request(etude: Run, run_folder: Path, tmp_path: Path) -> None:
    source = run_folder / "checkpoints" / "step-000000002"
    etude("convert", source, tmp_path / "m.pth", "--to", "mmcv", "--optimizer")
    assert foreign.read(tmp_path / "m.pth")["optimizer"]["param_groups"][0]["lr"] == 0.1


def test_prune_keeps_last_and_best(etude: Run, run_folder: Path) -> None:
    words = ("prune", run_folder, "--keep", 1, "--best", "accuracy")
    assert etude(*words, "--dry-run")[1] == "would delete step-000000002\n"
    assert etude(*words)[1] == "deleted step-000000002\n"
    assert [entry.step for entry in Store(run_folder / "checkpoints").entries()] == [1, 3]


def test_average_is_the_mean(etude: Run, run_folder: Path, tmp_path: Path) -> None:
    folder = run_folder / "checkpoints"
    torch.save({"w": torch.full((4, 3), 6.0), "b": torch.zeros(3)}, tmp_path / "other.pth")
    sources = (folder / "step-000000001", folder / "step-000000002", tmp_path / "other.pth")
    code, out, _ = etude("average", *sources, "-o", tmp_path / "mean.pth")
    assert code == 0 and "2 tensors averaged over 3" in out
    assert torch.equal(foreign.read(tmp_path / "mean.pth")["w"], torch.full((4, 3), 3.0))


def test_mistakes_are_answered_in_a_line(etude: Run, run_folder: Path, tmp_path: Path) -> None:
    for words, code, text in [
        (("ls", tmp_path / "nowhere"), 2, "is not a folder"),
        (("show", tmp_path / "nothing.pth"), 7, "no such file"),
        (
            ("convert", run_folder / "checkpoints" / "step-000000001", tmp_path / "x", "--to", "zip"),
            2,
            "one of safetensors",
        ),
        (("average", tmp_path / "a.pth", "-o", tmp_path / "x"), 2, "at least two"),
    ]:
        got, _, err = etude(*words)
        assert got == code and text in err and "Traceback" not in err
