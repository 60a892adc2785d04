"""Checkpoints in the folders of other systems: which is newest, what it was kept for, and whether it is whole."""

from __future__ import annotations

import os
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.formats import folders
from etude.checkpoint.formats.folders import checkpoints, damage, fault, has_checksums, newest, one, read, steps_in
from etude.checkpoint.storage.places import locate
from etude.errors import NoCheckpoint, ResumeError


def save(path: str, **content: Any) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": {}, **content}, path)


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        ({"meta": {"iter": 5}}, 5), ({"trainer": {"iter": 5}}, 6), ({"trainer": {"_step": 5}}, 5), ({"iteration": 5}, 6),
        ({"step": 5}, 5), ({"meta": {"iter": "5"}, "step": 3}, 3), ({"meta": 3}, 0), ({}, 0),
        ({"iteration": 5, "lr_scheduler": {"last_epoch": 5}}, 5), ({"iteration": 5, "lr_scheduler": {"last_epoch": 0}}, 6),
        ({"iteration": 5, "lr_scheduler": {"last_epoch": 9}}, 6), ({"iteration": 5, "lr_scheduler": [1]}, 6),
        ({"iteration": 5, "lr_scheduler": {"last_epoch": 1}}, 1),
    ],
)  # fmt: skip
def test_the_steps_of_a_checkpoint_are_counted_in_the_words_of_its_system(state: dict[str, Any], steps: int) -> None:
    assert steps_in(state) == steps


def test_the_newest_is_pointed_to_or_has_the_most_steps_and_is_not_a_best_one() -> None:
    assert newest("w") is None
    save("w/epoch_1.pth", meta={"iter": 4, "epoch": 1})
    save("w/epoch_2.pth", meta={"iter": 8, "epoch": 2})
    save("w/best_acc_epoch_2.pth", meta={"iter": 8, "epoch": 2})
    save("w/.hidden.pth")
    Path("w/notes.txt").touch()
    found = checkpoints("w")
    assert [(x.name, x.step, x.purpose, x.epoch) for x in found] == [
        ("epoch_1.pth", 4, "", 1), ("epoch_2.pth", 8, "", 2), ("best_acc_epoch_2.pth", 8, "best by acc", 2),
    ]  # fmt: skip
    assert [bool(x.periodic) for x in found] == [True, True, False] and not any(x.pointers for x in found)
    assert os.path.basename(newest("w") or "") == "epoch_2.pth"
    Path("w/last_checkpoint").write_text("/elsewhere/w/epoch_1.pth\n")
    assert os.path.basename(newest("w") or "") == "epoch_1.pth" and checkpoints("w")[0].pointers == ("last_checkpoint",)
    os.remove("w/last_checkpoint")
    os.symlink("epoch_1.pth", "w/latest.pth")
    assert [x.name for x in checkpoints("w")] == ["epoch_1.pth", "epoch_2.pth", "best_acc_epoch_2.pth"]
    assert os.path.basename(newest("w") or "") == "epoch_1.pth"
    for name in ("epoch_1.pth", "epoch_2.pth", "latest.pth"):
        os.remove(f"w/{name}")
    assert os.path.basename(newest("w") or "") == "best_acc_epoch_2.pth"


def test_a_name_tells_the_steps_where_the_content_does_not() -> None:
    save("w/iter_30.pth")
    save("w/model_0000029.pth")
    Path("w/iter_20.pth").write_bytes(b"damaged")
    save("w/model_final.pth")
    found = {x.name: (x.step, x.purpose) for x in checkpoints("w")}
    assert found == {
        "iter_30.pth": (30, ""), "model_0000029.pth": (30, ""), "iter_20.pth": (20, ""), "model_final.pth": (0, "final"),
    }  # fmt: skip
    assert folders.Found("a", "w/iter_30.pth").epoch is None
    save("w/x.pth", trainer={"_epoch": 3})
    save("w/y.pth", epoch=4, meta={"epoch": "no"})
    assert [folders.Found("a", f"w/{name}.pth").epoch for name in "xy"] == [3, 4]


def test_a_run_of_a_project_has_its_files_in_folders_by_time() -> None:
    for name in ("240101-120000/saved.ckpt", "latest/last.ckpt", "latest/.part.ckpt", "other/saved.ckpt"):
        save(f"p/{name}", step=3)
    Path("p/latest/log.txt").touch()
    assert sorted((x.name, x.purpose) for x in checkpoints("p")) == [
        ("240101-120000/saved.ckpt", ""), ("latest/last.ckpt", "final"),
    ]  # fmt: skip


def test_a_folder_of_parts_is_one_checkpoint_with_an_entry_each() -> None:
    for part in ("model", "trainer"):
        save(f"w/model_0000009/{part}", iter=9)
    (found,) = checkpoints("w")
    assert found.name == "model_0000009" and set(found.about) == {"model", "trainer"} and found.step == 10
    assert found.size == sum(os.path.getsize(f"w/model_0000009/{part}") for part in ("model", "trainer"))
    assert found.saved.endswith("Z") and one("w/model_0000009/") is not None and one("w") is None
    assert has_checksums("w/model_0000009") and fault("w/model_0000009") == ""
    os.remove("w/model_0000009/model")
    assert fault("w/model_0000009") == "it has no entry 'model'"
    assert damage("w/model_0000009", need=("model|trainer",)) == ""
    with pytest.raises(ResumeError, match="it has no entry 'model'"):
        read("w/model_0000009")
    Path("w/model_0000009/model").mkdir()
    with pytest.raises(ResumeError, match="OneFlow"):
        read("w/model_0000009")
    with pytest.raises(NoCheckpoint, match="a folder, where a checkpoint is needed"):
        read("w")


def test_a_changed_byte_is_found_and_said_without_the_path() -> None:
    save("a.pth", w=torch.arange(1000.0))
    data = bytearray(Path("a.pth").read_bytes())
    assert damage("a.pth") == "" and fault("a.pth") == "" and has_checksums("a.pth")
    at = data.index(torch.arange(1000.0).numpy().tobytes()[400:440])
    data[at] ^= 1
    Path("a.pth").write_bytes(data)
    assert "the checksum of" in damage("a.pth") and "a.pth" not in damage("a.pth")
    Path("a.pth").write_bytes(data[:200])
    assert fault("a.pth")
    Path("b.bin").write_bytes(b"no archive")
    assert not has_checksums("b.bin") and one("b.bin") is not None and one("c.bin") is None


def test_a_folder_of_parts_is_as_new_as_its_newest_file() -> None:
    for part, moment in (("model", 86400), ("trainer", 3 * 86400), ("optimizer", 2 * 86400)):
        save(f"w/model_0000009/{part}", iter=9)
        os.utime(f"w/model_0000009/{part}", (moment, moment))
    Path("w/model_0000009/.part").write_bytes(b"not counted")
    Path("w/model_0000009/folder").mkdir()
    (found,) = checkpoints("w")
    assert found.saved == "1970-01-04T00:00:00Z" and set(found.about) == {"model", "optimizer", "trainer"}
    assert folders.Found("x", "w/none.pth").saved == "" and folders.Found("x", "w/none.pth").size == 0


def test_checkpoints_in_one_folder_elsewhere_are_found_by_their_endings() -> None:
    place, where = locate(f"memory://{uuid.uuid4().hex}/w")
    folder = f"memory:/{where}/"
    save("epoch_1.pth", meta={"iter": 4, "epoch": 1})
    place.make_folder(where)
    for name in ("epoch_1.pth", "epoch_2.pth", "model_0000009", "notes.txt", ".epoch_3.pth", "240101-120000"):
        place.put(place.join(where, name), [Path("epoch_1.pth").read_bytes()])
    place.put(place.join(where, "last_checkpoint"), [b"epoch_1.pth\n"])
    found = checkpoints(folder)
    assert [(x.name, x.pointers, x.step, x.saved) for x in found] == [
        ("epoch_1.pth", ("last_checkpoint",), 4, ""), ("epoch_2.pth", (), 4, ""),
    ]  # fmt: skip
    assert found[0].path == f"{folder.rstrip('/')}/epoch_1.pth" and found[0].size == os.path.getsize("epoch_1.pth")
    assert newest(folder) == found[0].path and has_checksums(found[0].path)
    assert one(found[0].path) == folders.Found("epoch_1.pth", found[0].path) and one(f"{folder}notes.txt") is None


@pytest.mark.parametrize(
    ("name", "purpose", "periodic"),
    [
        ("best_acc_epoch_2.pth", "best by acc", False), ("best_a_b_iter_30.pth", "best by a_b", False),
        ("model_best", "best", False), ("model_best.pth", "best", False), ("best.ckpt", "best", False),
        ("model_final.pth", "final", False), ("last.ckpt", "final", False), ("epoch_2.pth", "", True),
        ("iter_2.ckpt", "", True), ("model_0000009", "", True), ("epoch_2", "", True), ("epoch_2.txt", "", False),
        ("x.pth", "", False), ("best_acc.pth", "", False), ("run/epoch_2.pth", "", True),
    ],
)  # fmt: skip
def test_a_name_tells_what_a_checkpoint_was_kept_for(name: str, purpose: str, periodic: bool) -> None:
    found = folders.Found(name, name)
    assert found.purpose == purpose and (found.periodic is not None) == periodic


def test_checkpoints_are_in_order_of_steps_with_those_of_a_purpose_behind() -> None:
    for name in ("best_x_epoch_1", "b", "a", "model_final"):
        save(f"w/{name}.pth", meta={"iter": 4})
    save("w/z.pth", meta={"iter": 3})
    assert [x.name for x in checkpoints("w")] == [
        "z.pth", "a.pth", "b.pth", "best_x_epoch_1.pth", "model_final.pth",
    ]  # fmt: skip
    assert os.path.basename(newest("w") or "") == "model_final.pth"


def test_a_pointer_to_nothing_and_one_out_of_the_folder_lead_nowhere() -> None:
    save("w/epoch_1.pth", meta={"iter": 4})
    save("epoch_9.pth", meta={"iter": 9})
    for text in ("", "../epoch_9.pth", "none.pth"):
        Path("w/last_checkpoint").write_text(text)
        assert [(x.name, x.pointers) for x in checkpoints("w")] == [("epoch_1.pth", ())]
    os.remove("w/last_checkpoint")
    save("w/latest.pth", meta={"iter": 5})
    assert [(x.name, x.pointers) for x in checkpoints("w")] == [("epoch_1.pth", ()), ("latest.pth", ())]


@pytest.mark.parametrize(
    ("path", "text", "left"),
    [
        ("a.pth", "a.pth: damaged", "damaged"), ("a", "a: a/b is missing, a/c too", "b is missing, a/c too"),
        ("a/", "a/b is missing", "b is missing"), ("a", "no path", "no path"),
    ],
)  # fmt: skip
def test_a_message_is_told_without_its_path(path: str, text: str, left: str) -> None:
    assert folders.without(path, text) == left


@pytest.mark.parametrize(
    ("state", "epoch"),
    [
        ({"counters": {"epoch": 1}, "epoch": 2}, 1), ({"meta": {"epoch": 0}}, 0), ({"epoch": True}, None),
        ({"meta": [1], "epoch": 3}, 3), ({}, None), ({"trainer": {"_epoch": 4}}, 4),
    ],
)  # fmt: skip
def test_the_epoch_is_found_in_the_words_of_its_system(state: dict[str, Any], epoch: int | None) -> None:
    assert folders.epoch_in(state) == epoch


def test_one_file_without_checksums_is_enough_to_miss_a_changed_bit() -> None:
    save("w/model_0000009/model", iter=9)
    torch.save({"a": 1}, "w/model_0000009/trainer", _use_new_zipfile_serialization=False)
    assert fault("w/model_0000009") == "" and not has_checksums("w/model_0000009")


def test_what_can_be_read_byte_by_byte_may_still_be_no_checkpoint() -> None:
    with zipfile.ZipFile("x.pth", "w") as archive:
        archive.writestr("notes.txt", "no tensors")
    assert damage("x.pth") == "" and fault("x.pth") == "a zip file, but not one of torch"
