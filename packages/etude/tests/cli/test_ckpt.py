from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.formats import foreign
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


@pytest.mark.parametrize("words", [["ls"], ["show"], ["verify"], ["diff", "x"], ["prune", "--keep", "1"],
                                   ["convert", "out.pth"], ["average", "x", "-o", "o.pth"]])  # fmt: skip
def test_a_path_without_a_checkpoint_is_a_mistake_of_the_command(etude: Run, tmp_path: Path, words: list[str]) -> None:
    """For every command; 7 is for one that is there and cannot be used."""
    (tmp_path / "empty").mkdir()
    for place in ("nowhere", "nowhere.pth", "empty"):
        code, _, err = etude(words[0], tmp_path / place, *words[1:])
        assert code == 2 and place in err, err


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


def test_prune_refuses_a_metric_that_no_checkpoint_has(etude: Run, run_folder: Path) -> None:
    code, _, said = etude("prune", run_folder, "--keep", 1, "--best", "acuracy")
    assert code == 2 and "'accuracy'" in said


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
        (("ls", tmp_path / "nowhere"), 2, "nowhere: no such file or checkpoint"),
        (("show", tmp_path / "nothing.pth"), 2, "no such file"),
        (
            ("convert", run_folder / "checkpoints" / "step-000000001", tmp_path / "x", "--to", "zip"),
            2,
            "one of safetensors",
        ),
        (("average", tmp_path / "a.pth", "-o", tmp_path / "x"), 2, "at least two"),
    ]:
        got, _, err = etude(*words)
        assert got == code and text in err and "Traceback" not in err


def test_a_run_or_its_latest_stands_for_its_newest_checkpoint(etude: Run, run_folder: Path, tmp_path: Path) -> None:
    newest = etude("show", run_folder / "checkpoints" / "step-000000003")
    for path in (run_folder, run_folder / "checkpoints", run_folder / "checkpoints" / "latest"):
        assert etude("show", path) == newest
        assert etude("diff", path, run_folder / "checkpoints" / "step-000000003")[:2] == (0, "the same\n")
    assert etude("verify", run_folder / "checkpoints" / "latest")[1] == "step-000000003  ok\n"
    assert etude("average", run_folder, run_folder / "checkpoints" / "latest", "-o", tmp_path / "m.pth")[0] == 0


def test_a_pointer_that_leads_elsewhere_is_not_followed(etude: Run, run_folder: Path) -> None:
    for text in ("../../secret", "step-000000009", "/etc/passwd", "\x1b[2J"):
        (run_folder / "checkpoints" / "latest").write_text(text)
        code, _, said = etude("show", run_folder / "checkpoints" / "latest")
        assert code == 7 and "there is no such checkpoint in its folder" in said and "\x1b" not in said


def test_a_path_that_is_not_there_is_answered_with_what_is(etude: Run, run_folder: Path) -> None:
    code, _, said = etude("show", run_folder / "checkpoints" / "step-3")
    assert code == 2 and "has step-000000001, step-000000002, step-000000003" in said
    assert "nowhere/at/all: no such file or checkpoint, nor a folder nowhere/at" in etude("show", "nowhere/at/all")[2]


def test_what_the_clock_says_is_no_difference(etude: Run, tmp_path: Path) -> None:
    from etude.events.jsonl import Jsonl
    from etude.events.record import Events, Record

    for name, share in (("a", 0.5), ("b", 0.123456789)):
        (tmp_path / name).mkdir()
        events = Events([Jsonl(tmp_path / name / "m.jsonl"), Jsonl(tmp_path / name / "t.jsonl", timing=True)])
        for writer in events.writers:
            writer.write(Record(1, 0, "train", {"loss": 1.0, "time/step": share}, 0.0))
        store = Store(tmp_path / name / "checkpoints")
        store.save({"events": events.state_dict(), **small_state(1)}, step=1)
        store.close()
        events.close()
    assert (tmp_path / "a/t.jsonl").stat().st_size != (tmp_path / "b/t.jsonl").stat().st_size
    assert etude("diff", tmp_path / "a", tmp_path / "b")[:2] == (0, "the same\n")


def test_convert_wants_the_name_of_a_file(etude: Run, run_folder: Path, tmp_path: Path) -> None:
    code, _, said = etude("convert", run_folder / "checkpoints" / "step-000000001", tmp_path)
    assert code == 2 and "is a folder" in said


def test_prune_never_counts_a_damaged_one_as_kept(etude: Run, run_folder: Path) -> None:
    victim = run_folder / "checkpoints" / "step-000000003" / "model.safetensors"
    victim.write_bytes(victim.read_bytes()[:100])
    _, out, _ = etude("prune", run_folder, "--keep", 1)
    assert "left alone step-000000003: model.safetensors has" in out and out.endswith("deleted step-000000001\n")
    assert Store(run_folder / "checkpoints", write=False).load("step-000000002").manifest.step == 2


def test_what_is_damaged_is_named_whatever_is_asked_of_it(etude: Run, run_folder: Path, tmp_path: Path) -> None:
    folder = run_folder / "checkpoints" / "step-000000003"
    (folder / "model.safetensors").write_bytes(b"")
    whole = run_folder / "checkpoints" / "step-000000001"
    asked = [("show", run_folder), ("diff", whole, folder), ("convert", folder, tmp_path / "x.pth"),
             ("average", whole, folder, "-o", tmp_path / "x.pth")]  # fmt: skip
    for words in asked:
        code, _, said = etude(*words)
        assert (
            code == 7 and "step-000000003: model.safetensors has 0 B of" in said and not (tmp_path / "x.pth").exists()
        )
    (folder / "manifest.json").unlink()
    for words in (*asked[1:], ("show", folder)):
        code, _, said = etude(*words)
        assert code == 7 and "step-000000003: it has no manifest.json" in said
    assert etude("verify", folder)[:2] == (7, "step-000000003  it has no manifest.json\n")
    for file in folder.iterdir():
        file.unlink()
    (run_folder / "checkpoints" / "notes.txt").write_text("mine")
    out = etude("verify", run_folder)[1].splitlines()
    assert out == ["step-000000001  ok", "step-000000002  ok", "step-000000003  it has no manifest.json"]


def test_a_folder_of_runs_is_answered_with_the_newest(etude: Run, run_folder: Path) -> None:
    code, _, said = etude("ls", run_folder.parent)
    assert code == 2 and f"it holds runs, the newest is {run_folder}" in said
