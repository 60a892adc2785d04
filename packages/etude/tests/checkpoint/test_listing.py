from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
import torch

from etude.checkpoint.retention import Retention
from etude.checkpoint.store import Store
from etude.checkpoint.tools.listing import (
    Checked,
    Pruned,
    check,
    listed,
    native_names,
    newest_run,
    prune,
    rows,
    store_folder,
)
from etude.errors import UserError

from .conftest import small_state


def test_a_line_has_the_step_the_metrics_and_which_one_is_best(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step, loss in ((3, 0.5), (6, 0.25)):
        store.save(small_state(step), step=step, epoch=step // 3, metrics={"loss": loss})
    store.close()
    (tmp_path / "best").write_text("step-000000006\n")
    assert [(row[0], row[1], row[2], row[5]) for row in rows(str(tmp_path))] == [
        ("step-000000003", "3", "1", "loss 0.5"),
        ("step-000000006", "6", "2", "loss 0.25  (best)"),
    ]


def saved(folder: str, *steps: int) -> list[str]:
    store = Store(folder)
    for step in steps:
        store.save(small_state(step), step=step, metrics={"loss": 1.0 / step})
    store.close()
    return [f"step-{step:09d}" for step in steps]


def test_pruning_deletes_what_the_rule_does_not_keep_and_leaves_what_is_damaged() -> None:
    names = saved("c", 1, 2, 3, 4)
    os.remove(f"c/{names[2]}/model.safetensors")
    Path("c/aside-x").mkdir()
    dry = prune("c", Retention(last=1), dry=True, aside=True)
    assert dry.gone == [names[0], names[1], "aside-x"] and len(os.listdir("c")) >= 5
    assert len(dry.left) == 1 and dry.left[0].startswith(f"{names[2]}: ")
    done = prune("c", Retention(last=1))
    assert done.gone == names[:2] and sorted(name for name in os.listdir("c") if "step-" in name) == names[2:]
    assert Path("c/aside-x").exists()
    with pytest.raises(UserError, match="is one checkpoint; pass its folder"):
        prune(f"c/{names[3]}", Retention(last=1))
    with pytest.raises(UserError, match="no checkpoint has the metric 'los'; did you mean 'loss'"):
        prune("c", Retention(last=1, best=1, metric="los"))


def test_pruning_the_files_of_another_system_keeps_the_best_and_what_is_pointed_to() -> None:
    Path("w/.etude").mkdir(parents=True)
    for name in ("epoch_1", "epoch_2", "epoch_3", "epoch_4", "best_loss_epoch_1"):
        torch.save({"meta": {"iter": int(name[-1])}, "state_dict": {}}, f"w/{name}.pth")
    Path("w/epoch_2.pth").write_bytes(b"damaged")
    Path("w/last_checkpoint").write_text("epoch_3.pth")
    dry = prune("w", Retention(last=1), dry=True)
    assert dry.gone == ["epoch_1.pth"] and [line.partition(":")[0] for line in dry.left] == ["epoch_2.pth"]
    assert Path("w/epoch_1.pth").exists()
    assert prune("w", Retention(last=1)).gone == ["epoch_1.pth"] and not Path("w/epoch_1.pth").exists()
    assert sorted(os.listdir("w"))[1:] == [
        "best_loss_epoch_1.pth", "epoch_2.pth", "epoch_3.pth", "epoch_4.pth", "last_checkpoint",
    ]  # fmt: skip
    with pytest.raises(UserError, match="do not record a metric"):
        prune("w", Retention(best=1, metric="loss"))


def test_a_folder_without_checkpoints_names_the_newest_run_in_it() -> None:
    with pytest.raises(UserError, match="no run with checkpoints below runs/"):
        newest_run()
    for name in ("b/2024-01-02", "a/2024-01-03"):
        Path(f"runs/{name}/checkpoints").mkdir(parents=True)
    assert newest_run() == "runs/a/2024-01-03"
    for folder, newest in (("runs", "runs/a/2024-01-03"), ("runs/b", "runs/b/2024-01-02")):
        with pytest.raises(UserError, match=f"no checkpoint in {folder}, .*; it holds runs, the newest is {newest}$"):
            prune(folder, Retention(last=1))
    Path("empty").mkdir()
    with pytest.raises(UserError, match="a system that it knows$"):
        rows("empty")
    Path("empty/plan.yaml").write_text("checkpoint: {folder: /far}")
    with pytest.raises(UserError, match="its plan keeps them in /far$"):
        rows("empty")


def test_the_newest_of_many_runs_is_the_last_by_its_name() -> None:
    for name in ("a/3", "b/4", "c/1", "d/2"):
        Path(f"runs/{name}/checkpoints").mkdir(parents=True)
    assert newest_run() == newest_run("runs") == "runs/b/4"


def test_what_is_no_folder_or_not_there_is_said() -> None:
    Path("file").touch()
    for path, message in (("file", "file: is not a folder"), ("none", "none: no such file or checkpoint")):
        with pytest.raises(UserError, match=message):
            store_folder(path)
    Path("run/checkpoints").mkdir(parents=True)
    assert store_folder("run") == "run"
    Path("run/checkpoints/x").touch()
    assert store_folder("run") == "run/checkpoints"


def test_one_checkpoint_its_pointer_and_its_folder_are_listed() -> None:
    names = saved("run/checkpoints", 1, 2)
    paths = [f"run/checkpoints/{name}" for name in names]
    assert listed("run") == listed("run/") == listed("run/checkpoints") == (paths, [])
    assert listed(paths[0]) == ([paths[0]], []) and listed("run/checkpoints/latest") == ([paths[1]], [])
    torch.save({"meta": {"iter": 4, "epoch": 2}, "state_dict": {}}, "latest")
    Path("run/checkpoints/.hidden").mkdir()
    Path("run/checkpoints/.hidden/manifest.json").touch()
    assert native_names("run/checkpoints") == names


def test_a_line_says_what_is_wrong_and_nothing_else() -> None:
    (name,) = saved("c", 1)
    Path(f"c/{name}/manifest.json").write_text("{")
    found = {row[0]: row for row in rows("c")}
    assert found[name] == (name, "", "", "", "", "its manifest is damaged")


def test_a_line_of_another_system_has_what_its_file_says() -> None:
    Path("w").mkdir()
    torch.save({"meta": {"iter": 4, "epoch": 2}, "state_dict": {}}, "w/epoch_2.pth")
    torch.save({"state_dict": {}}, "w/epoch_1.pth")
    Path("w/epoch_3.pth").write_bytes(b"damaged")
    Path("w/last_checkpoint").write_text("epoch_2.pth")
    found = {row[0]: row for row in rows("w")}
    assert [found["epoch_2.pth"][at] for at in (1, 2, 5)] == ["4", "2", "last_checkpoint"]
    assert [found["epoch_1.pth"][at] for at in (1, 2, 5)] == ["1", "", ""]
    assert found["epoch_3.pth"][5] == "neither a torch file nor safetensors" and found["epoch_3.pth"][1:3] == ("", "")
    assert rows("w/epoch_2.pth")[0][:3] == ("epoch_2.pth", "4", "2")


def test_pruning_forgets_the_notes_of_a_file_and_a_folder_of_parts() -> None:
    Path("w/.etude").mkdir(parents=True)
    for epoch in (1, 2):
        torch.save({"meta": {"iter": epoch}, "state_dict": {}}, f"w/epoch_{epoch}.pth")
        Path(f"w/.etude/epoch_{epoch}.pth.note.json").touch()
        Path(f"w/.etude/epoch_{epoch}.pth.rank1").touch()
    assert prune("w", Retention(last=1)).gone == ["epoch_1.pth"]
    assert sorted(os.listdir("w/.etude")) == ["epoch_2.pth.note.json", "epoch_2.pth.rank1"]
    for step in (9, 19):
        Path(f"l/model_00000{step:02d}").mkdir(parents=True)
        torch.save({}, f"l/model_00000{step:02d}/model")
    assert prune("l", Retention(last=1)).gone == ["model_0000009"] and os.listdir("l") == ["model_0000019"]


def test_a_folder_on_another_file_system_is_listed_and_pruned() -> None:
    folder = f"memory://{uuid.uuid4().hex}/run"
    assert store_folder(folder) == folder
    names = saved(f"{folder}/checkpoints", 1, 2)
    assert store_folder(folder) == f"{folder}/checkpoints"
    assert [row[0] for row in rows(folder)] == names and native_names(f"{folder}/checkpoints") == names
    assert [one.wrong for one in check(folder)] == ["", ""]
    assert prune(f"{folder}/checkpoints", Retention(last=1)).gone == names[:1]
    assert [row[0] for row in rows(folder)] == names[1:]
    with pytest.raises(UserError, match=r"^no checkpoint in memory://none, of Étude or of a system that it knows$"):
        rows("memory://none")


def test_a_line_of_weights_alone_says_so_and_the_best_is_marked_without_metrics() -> None:
    store = Store("c")
    store.save(small_state(1), step=1)
    store.wait()
    store.save(small_state(2), step=2, weights_only=True)
    store.close()
    Path("c/best").write_text("step-000000001")
    assert [(row[0], row[5]) for row in rows("c")] == [("step-000000001", "  (best)"), ("weights-000000002", "weights")]
    Path("c/best").write_bytes(b"\xff")
    assert rows("c")[0][5] == ""


def test_every_checkpoint_of_a_folder_is_checked_by_its_own() -> None:
    names = saved("c", 1, 2)
    Path(f"c/{names[0]}/model.safetensors").write_bytes(b"x")
    first, second = check("c")
    assert (first.name, second) == (names[0], Checked(names[1])) and first.wrong.startswith("model.safetensors has 1 B")
    assert check(f"c/{names[1]}") == [Checked(names[1])]


def test_files_without_checksums_are_noted_and_damaged_ones_are_wrong() -> None:
    Path("w").mkdir()
    torch.save({"state_dict": {"w": torch.ones(3)}, "meta": {}}, "w/epoch_1.pth")
    torch.save({"state_dict": {"w": torch.ones(3)}}, "w/epoch_2.pth", _use_new_zipfile_serialization=False)
    Path("w/epoch_3.pth").write_bytes(b"damaged")
    found = {one.name: (bool(one.wrong), bool(one.note)) for one in check("w")}
    assert found == {"epoch_1.pth": (False, False), "epoch_2.pth": (False, True), "epoch_3.pth": (True, False)}


def test_checkpoints_whose_manifests_cannot_be_read_are_not_those_of_another_system() -> None:
    (name,) = saved("c", 1)
    Path(f"c/{name}/manifest.json").write_text("{")
    torch.save({"meta": {"iter": 1}, "state_dict": {}}, "c/epoch_1.pth")
    torch.save({"meta": {"iter": 2}, "state_dict": {}}, "c/epoch_2.pth")
    assert prune("c", Retention(last=1)) == Pruned() and Path("c/epoch_1.pth").exists()
    assert listed("c") == ([f"{os.path.abspath('c')}/{name}"], []) or listed("c") == ([f"c/{name}"], [])


def test_a_metric_is_not_asked_for_where_none_is_recorded() -> None:
    store = Store("c")
    for step in (1, 2):
        store.save(small_state(step), step=step)
    store.close()
    assert prune("c", Retention(last=1, best=1, metric="loss")).gone == ["step-000000001"]


def test_links_and_pointed_ones_of_another_system_stay() -> None:
    Path("w").mkdir()
    for number in (1, 2, 3):
        torch.save({"meta": {"iter": number}, "state_dict": {}}, f"w/epoch_{number}.pth")
    Path("w/epoch_0.pth").symlink_to("epoch_1.pth")
    Path("w/last_checkpoint").write_text("epoch_1.pth")
    assert prune("w", Retention(last=1)).gone == ["epoch_2.pth"]
    assert sorted(os.listdir("w")) == ["epoch_0.pth", "epoch_1.pth", "epoch_3.pth", "last_checkpoint"]


def test_checkpoints_of_another_user_are_listed_and_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    names = saved("c", 1, 2)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert [row[:2] for row in rows("c")] == [(names[0], "1"), (names[1], "2")]
    assert all("another user" in one.wrong for one in check("c"))
    assert [one.wrong for one in check("c", trust_owner=True)] == ["", ""]
    assert prune("c", Retention(last=1)) == Pruned(gone=names[:1])


def test_pruning_leaves_a_save_that_may_be_under_way() -> None:
    saved("c", 1, 2)
    Path("c/.step-000000003.tmp-1").mkdir()
    prune("c", Retention(last=1))
    assert Path("c/.step-000000003.tmp-1").exists()


def test_a_pointer_is_a_file_and_may_end_with_a_slash() -> None:
    names = saved("latest", 1, 2)
    assert [os.path.basename(path) for path in listed("latest")[0]] == names
    assert [os.path.basename(path) for path in listed("latest/latest/")[0]] == names[1:]
