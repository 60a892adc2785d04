"""``etude ckpt`` in the work folders of other systems: listed, verified, shown and pruned as data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.checkpoint.formats import folders, foreign
from etude.checkpoint.tools.compare import differences
from etude.cli import main
from tests.sampling import examples

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def etude(capsys: Any) -> Run:
    def call(*words: Any) -> tuple[int, str, str]:
        code = main(["ckpt", *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def weights(number: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((40, 30), float(number)), "b": torch.zeros(3)}


def mm_file(path: Path, epoch: int, **more: Any) -> None:
    torch.save({"meta": {"epoch": epoch, "iter": epoch * 10}, "state_dict": weights(epoch), **more}, path)


def mmcv_folder(folder: Path) -> Path:
    folder.mkdir()
    for epoch in (1, 2, 10):
        mm_file(folder / f"epoch_{epoch}.pth", epoch)
        (folder / ".etude").mkdir(exist_ok=True)
        (folder / ".etude" / f"epoch_{epoch}.pth.note").write_bytes(b"note")
    mm_file(folder / "best_accuracy_epoch_2.pth", 2)
    (folder / "latest.pth").symlink_to("epoch_10.pth")
    (folder / "20261116_025647.log.json").write_text("{}")
    return folder


def mmengine_folder(folder: Path) -> Path:
    folder.mkdir()
    for step in (50, 100):
        content = {"meta": {"epoch": 0, "iter": step}, "state_dict": weights(step), "message_hub": {"log_scalars": {}}}
        torch.save(content, folder / f"iter_{step}.pth")
    (folder / "last_checkpoint").write_text(str(folder / "iter_100.pth"))
    (folder / "20261116_025711").mkdir()
    return folder


def libai_folder(folder: Path) -> Path:
    for name, iteration in (("model_0000019", 19), ("model_0000999", 999), ("model_best", 19), ("model_final", 1029)):
        (folder / name).mkdir(parents=True)
        torch.save(weights(iteration), folder / name / "model")
        torch.save({"state": {}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}, folder / name / "optimizer")
        torch.save({"iter": iteration}, folder / name / "trainer")
    (folder / "last_checkpoint").write_text("model_final")
    return folder


def mcquic_folder(folder: Path) -> Path:
    for run, names in (("latest", ("saved", "best", "last")), ("261116-025741", ("saved",))):
        (folder / run).mkdir(parents=True)
        for number, name in enumerate(names, start=1):
            state = {"_epoch": number, "_step": number * 9, "_model": weights(number), "_optimizer": {"state": {}}}
            torch.save({"trainer": state, "config": {}}, folder / run / f"{name}.ckpt")
    return folder


FOLDERS = {"mmcv": mmcv_folder, "mmengine": mmengine_folder, "libai": libai_folder, "mcquic": mcquic_folder}
#: System → (name, step, epoch, remark) of each line that ``ls`` prints.
LISTED = {
    "mmcv": [
        ("epoch_1.pth", "10", "1", ""),
        ("epoch_2.pth", "20", "2", ""),
        ("best_accuracy_epoch_2.pth", "20", "2", "best by accuracy"),
        ("epoch_10.pth", "100", "10", "latest.pth"),
    ],
    "mmengine": [("iter_50.pth", "50", "0", ""), ("iter_100.pth", "100", "0", "last_checkpoint")],
    "libai": [
        ("model_0000019", "20", "", ""),
        ("model_best", "20", "", "best"),
        ("model_0000999", "1000", "", ""),
        ("model_final", "1030", "", "final, last_checkpoint"),
    ],
    "mcquic": [
        ("261116-025741/saved.ckpt", "9", "1", ""),
        ("latest/saved.ckpt", "9", "1", ""),
        ("latest/best.ckpt", "18", "2", "best"),
        ("latest/last.ckpt", "27", "3", "final"),
    ],
}


@pytest.mark.parametrize("system", FOLDERS)
def test_ls_knows_the_checkpoints_of_other_systems_and_nothing_else(etude: Run, tmp_path: Path, system: str) -> None:
    code, out, _ = etude("ls", FOLDERS[system](tmp_path / "work"))
    lines = out.splitlines()
    starts = [lines[0].index(word) for word in ("step", "epoch", "size", "saved", "metrics")]
    cells = [
        (line[: starts[0]], line[starts[0] : starts[1]], line[starts[1] : starts[2]], line[starts[4] :])
        for line in lines[1:]
    ]
    assert code == 0 and [tuple(cell.strip() for cell in row) for row in cells] == LISTED[system]


@pytest.mark.parametrize("system", FOLDERS)
def test_verify_reads_every_byte_of_them(etude: Run, tmp_path: Path, system: str) -> None:
    folder = FOLDERS[system](tmp_path / "work")
    names = [row[0] for row in LISTED[system]]
    code, out, _ = etude("verify", folder)
    assert code == 0 and out.splitlines() == [f"{name}  ok" for name in names]
    victim = folder / names[0]
    victim = victim / "model" if victim.is_dir() else victim
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    code, out, _ = etude("verify", folder)
    assert code == 7 and "the checksum of" in out.splitlines()[0] and out.splitlines()[1].endswith("  ok")
    victim.write_bytes(data[:100])
    assert etude("verify", folder)[0] == 7
    row = next(line for line in etude("ls", folder)[1].splitlines() if line.startswith(names[0]))
    assert "damaged or not a checkpoint" in row


@pytest.mark.parametrize("system", FOLDERS)
def test_such_a_folder_stands_for_what_a_resume_would_go_on_from(etude: Run, tmp_path: Path, system: str) -> None:
    folder = FOLDERS[system](tmp_path / "work")
    newest = {"mmcv": "epoch_10.pth", "mmengine": "iter_100.pth", "libai": "model_final", "mcquic": "latest/last.ckpt"}
    assert etude("show", folder) == etude("show", folder / newest[system])
    assert etude("diff", folder, folder / newest[system])[:2] == (0, "the same\n")


def test_prune_thins_the_row_and_leaves_what_has_a_purpose(etude: Run, tmp_path: Path) -> None:
    folder = mmcv_folder(tmp_path / "work")
    words = ("prune", folder, "--keep", 1)
    assert etude(*words, "--dry-run")[1] == "would delete epoch_1.pth\nwould delete epoch_2.pth\n"
    assert not (folder / ".lock").exists()
    assert etude(*words)[1] == "deleted epoch_1.pth\ndeleted epoch_2.pth\n"
    left = {path.name for path in folder.iterdir()} - {".lock"}
    assert left == {"epoch_10.pth", "latest.pth", "best_accuracy_epoch_2.pth", ".etude", "20261116_025647.log.json"}
    assert [path.name for path in (folder / ".etude").iterdir()] == ["epoch_10.pth.note"]
    assert etude(*words)[1] == "nothing to delete\n"


def test_prune_of_folders_that_hold_a_file_per_part(etude: Run, tmp_path: Path) -> None:
    folder = libai_folder(tmp_path / "work")
    assert etude("prune", folder, "--keep", 1)[1] == "deleted model_0000019\n"
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == [
        "last_checkpoint", "model_0000999", "model_best", "model_final",
    ]  # fmt: skip


def test_prune_never_counts_a_damaged_one_as_kept(etude: Run, tmp_path: Path) -> None:
    folder = mmcv_folder(tmp_path / "work")
    os.unlink(folder / "latest.pth")
    (folder / "epoch_10.pth").write_bytes((folder / "epoch_10.pth").read_bytes()[:200])
    _, out, _ = etude("prune", folder, "--keep", 1)
    assert "left alone epoch_10.pth: damaged" in out and out.endswith("deleted epoch_1.pth\n")
    assert (folder / "epoch_2.pth").exists()


def test_what_is_pointed_to_stays_even_when_it_is_old(etude: Run, tmp_path: Path) -> None:
    folder = mmengine_folder(tmp_path / "work")
    (folder / "last_checkpoint").write_text(str(folder / "iter_50.pth"))
    assert etude("prune", folder, "--keep", 1)[1] == "nothing to delete\n"


def test_prune_says_what_it_cannot_do(etude: Run, tmp_path: Path) -> None:
    folder = mmcv_folder(tmp_path / "work")
    code, _, said = etude("prune", folder, "--keep", 1, "--best", "accuracy")
    assert code == 2 and "leave out --best" in said
    code, _, said = etude("prune", folder / "epoch_1.pth", "--keep", 1)
    assert code == 2 and "is not a folder" in said
    code, _, said = etude("prune", libai_folder(tmp_path / "libai") / "model_best", "--keep", 1)
    assert code == 2 and "is one checkpoint" in said
    (tmp_path / "empty").mkdir()
    for words in (("ls",), ("verify",), ("prune", "--keep", "1")):
        code, _, said = etude(words[0], tmp_path / "empty", *words[1:])
        assert code == 2 and "no checkpoint in" in said


def test_a_pointer_is_not_followed_out_of_its_folder(etude: Run, tmp_path: Path) -> None:
    folder = mmengine_folder(tmp_path / "work")
    mm_file(tmp_path / "other.pth", 7)
    (folder / "last_checkpoint").write_text(str(tmp_path / "other.pth"))
    assert ["meta.iter", "100"] in [line.split() for line in etude("show", folder)[1].splitlines()]


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def test_a_hostile_file_is_refused_in_plain_words_and_not_run(etude: Run, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = mmcv_folder(tmp_path / "work")
    mm_file(folder / "epoch_3.pth", 3, extra=Hostile(marker))
    for words in (("ls", folder), ("verify", folder), ("show", folder / "epoch_3.pth"), ("prune", folder, "--keep", 1)):
        code, out, err = etude(*words)
        assert "refused: global os.system" in out + err and not marker.exists()
    code, _, said = etude("show", folder / "epoch_3.pth")
    assert code == 7 and "epoch_3.pth: refused: global os.system" in said
    assert "nothing in it was run" in said and "--trust, or ETUDE_TRUST=1, would let it run" in said
    assert (folder / "epoch_3.pth").exists()
    assert etude("show", folder / "epoch_3.pth", "--trust")[0] == 0 and marker.exists()


def test_what_is_missing_in_such_a_folder_is_said(etude: Run, tmp_path: Path) -> None:
    folder = libai_folder(tmp_path / "libai")
    (folder / "model_0000019" / "model").unlink()
    (folder / "model_0000999" / "trainer").write_bytes(b"")
    out = etude("verify", folder)[1].splitlines()
    assert "model_0000019  it has no entry 'model'" in out and "model_0000999  trainer: the file is empty" in out
    assert "it has no entry 'model'" in etude("show", folder / "model_0000019")[2]
    (folder / "model_0000019" / "model").mkdir()
    assert "flow.save wrote" in etude("show", folder / "model_0000019")[2]
    folder = mmcv_folder(tmp_path / "mmcv")
    (folder / "epoch_10.pth").unlink()
    assert "latest.pth  no such file" in etude("verify", folder)[1].splitlines()


@settings(max_examples=examples(40))
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_changed_bit_is_found_or_changes_nothing(where: float, bit: int) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "epoch_1.pth"
        mm_file(path, 1)
        before = foreign.read(path)
        data = bytearray(path.read_bytes())
        data[int(where * len(data))] ^= 1 << bit
        path.write_bytes(data)
        assert folders.fault(str(path)) or not differences(before, foreign.read(path))


def test_paths_on_other_file_systems(etude: Run, tmp_path: Path) -> None:
    fs = fsspec.filesystem("memory")
    mmengine_folder(tmp_path / "work")
    for file in ("iter_50.pth", "iter_100.pth", "last_checkpoint"):
        fs.put(str(tmp_path / "work" / file), f"/elsewhere/work/{file}")
    assert [line.split()[:2] for line in etude("ls", "memory://elsewhere/work")[1].splitlines()[1:]] == [
        ["iter_50.pth", "50"], ["iter_100.pth", "100"],
    ]  # fmt: skip
    assert etude("verify", "memory://elsewhere/work")[:2] == (0, "iter_50.pth  ok\niter_100.pth  ok\n")
    assert etude("diff", "memory://elsewhere/work", tmp_path / "work")[:2] == (0, "the same\n")
    assert etude("ls", f"file://{tmp_path}/work")[1] == etude("ls", tmp_path / "work")[1]
    for words, text in ((("ls", "nosuch://x"), "Protocol not known"), (("ls", "memory://nothing"), "no checkpoint in")):
        code, _, said = etude(*words)
        assert code == 2 and text in said
    code, _, said = etude("prune", "memory://elsewhere/work", "--keep", 1)
    assert code == 2 and "on the local disk alone" in said
