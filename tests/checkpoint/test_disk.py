from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from etude.checkpoint.storage import disk


def test_a_file_written_atomically_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "model.pth"
    target.write_bytes(b"old")
    disk.write_atomically(target, lambda file: file.write(b"new"))
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["model.pth"]


def test_an_error_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "model.pth"
    target.write_bytes(b"old")

    def write(file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise ValueError("the object cannot be pickled")

    with pytest.raises(ValueError, match="cannot be pickled"):
        disk.write_atomically(target, write)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.pth"]


def test_each_call_of_an_atomic_write_may_fail_without_harm(tmp_path: Path) -> None:
    target = tmp_path / "model.pth"
    target.write_bytes(b"old")
    for failing in range(1, 50):
        count = 0

        def gate(call: str, path: str, size: int) -> None:
            nonlocal count
            count += 1
            if count == failing:
                error = OSError(errno.EIO, os.strerror(errno.EIO), path)
                raise disk.Torn(size // 2, error) if call == "write" else error

        try:
            with disk.gated(gate):
                disk.write_atomically(target, lambda file: file.write(b"new content"))
        except OSError as error:
            assert error.errno == errno.EIO
            assert target.read_bytes() in (b"old", b"new content")
            continue
        break
    assert failing == 7  # remove, create, write, fsync, rename, fsync of the folder: six calls, the seventh is none
    assert target.read_bytes() == b"new content"
    assert os.listdir(tmp_path) == ["model.pth"]


def test_a_new_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"keep me")
    (tmp_path / "new").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        disk.Writer(str(tmp_path / "new"))
    assert (tmp_path / "precious").read_bytes() == b"keep me"


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError):
            disk.open_file(str(tmp_path / name))


def test_removing_a_folder_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"x")
    (tmp_path / "gone" / "deep").mkdir(parents=True)
    (tmp_path / "gone" / "deep" / "link").symlink_to(outside)
    disk.remove_tree(str(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()
    assert (outside / "file").exists()
