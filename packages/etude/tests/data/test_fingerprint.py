"""Tests of :mod:`etude.data.fingerprint`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from etude.data import fingerprint
from etude.data.datasets.images import ImageFolder
from etude.data.fingerprint import fingerprint_of
from tests.data.support import pictures, repainted


class Listed:
    """A dataset of another package that lists its files, as torchvision's do."""

    def __init__(self, folder: str) -> None:
        self.samples = [(str(path), 0) for path in sorted(Path(folder).rglob("*.bmp"))]


@pytest.mark.parametrize("kind", [ImageFolder, Listed])
@pytest.mark.parametrize(
    "change",
    [repainted, lambda path: path.write_bytes(b"shorter"), lambda path: path.rename(path.with_name("9.bmp"))],
)
def test_a_picture_that_has_changed_makes_other_data_and_a_copy_does_not(tmp_path, kind, change):
    first, copy = pictures(tmp_path / "a"), tmp_path / "b"
    shutil.copytree(first, copy)
    assert fingerprint_of(kind(str(first))) == fingerprint_of(kind(str(copy))) != ""
    change(copy / "cat/2.bmp")
    assert fingerprint_of(kind(str(first))) != fingerprint_of(kind(str(copy)))


def test_a_data_set_without_a_fingerprint_is_known_by_what_it_holds(tmp_path):
    class Holds:
        def __init__(self, **fields):
            vars(self).update(fields)

    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    files = [(str(tmp_path / name), 0) for name in ("a", "b")]
    listed = fingerprint_of(Holds(samples=files))
    assert listed and listed == fingerprint_of(Holds(samples=files, root=str(tmp_path)))
    (tmp_path / "b").write_text("c")
    assert fingerprint_of(Holds(samples=files)) != listed
    (tmp_path / "b").unlink()
    assert fingerprint_of(Holds(samples=files)) not in ("", listed)
    several = ([1, 2], [*files, 3], [*files, ()], [(3, 0)], [*files, (3, 0)], [("nowhere", 0)], tuple(files))
    marks = {fingerprint_of(Holds(samples=samples)) for samples in several}
    assert len(marks) == len(several) and "" not in marks and listed not in marks
    assert fingerprint_of(Holds(samples=[])) == fingerprint_of(Holds(samples=[object()])) == ""
    assert fingerprint_of(Holds(tensors=[])) == fingerprint_of(Holds(tensors=[torch.ones(1), 2])) == ""
    inner = Holds(tensors=[torch.ones(2)])
    assert fingerprint_of(Holds(dataset=inner)) == fingerprint_of(inner) != ""
    assert fingerprint_of(Holds(fingerprint=3)) == "3" and fingerprint_of(Holds(fingerprint=lambda: "x")) == "x"
    loop = Holds()
    loop.dataset = loop
    assert fingerprint_of(loop) == ""


def test_of_large_data_evenly_spaced_pieces_count(monkeypatch):
    monkeypatch.setattr(fingerprint, "_WHOLE", 64)
    monkeypatch.setattr(fingerprint, "_PIECES", 4)
    whole, large = torch.zeros(64, dtype=torch.uint8), torch.zeros(400, dtype=torch.uint8)

    def changed(content: torch.Tensor, at: int) -> bool:
        other = content.clone()
        other[at] = 1
        return fingerprint.checksum_of_tensors([other]) != fingerprint.checksum_of_tensors([content])

    assert all(changed(whole, at) for at in (0, 31, 63))
    assert [changed(large, at) for at in (0, 15, 16, 99, 100, 115, 116, 300, 316)] == [
        True, True, False, False, True, True, False, True, False,
    ]  # fmt: skip


def test_checksums_stay_the_same_for_old_checkpoints(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert fingerprint.checksum_of_tensors([torch.arange(3), torch.ones(2, 1)]) == "549ebc50"
    assert fingerprint.checksum_of_texts(["a", "b"]) == "f515465f"
    assert fingerprint.checksum_of_files([tmp_path / "a"], root=tmp_path) == "927fb475"
    assert fingerprint.checksum_of_files([tmp_path / "none"], root=tmp_path) == "07cd2235"


@pytest.mark.parametrize(("sizes", "whole"), [((40, 60), True), ((40, 61), False), ((30, 30, 40), False)])
def test_files_are_read_as_a_whole_up_to_so_many_and_so_many_bytes(tmp_path, monkeypatch, sizes, whole):
    monkeypatch.setattr(fingerprint, "_READ", 100)
    monkeypatch.setattr(fingerprint, "_SIZED", 2)
    monkeypatch.setattr(fingerprint, "_BEGINNING", 10)
    paths = [tmp_path / str(number) for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(b"x" * size)
    before = fingerprint.checksum_of_files(paths, root=tmp_path)
    repainted(paths[0])  # its last byte
    assert (fingerprint.checksum_of_files(paths, root=tmp_path) != before) == whole
