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


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 35])
def test_a_write_is_cut_into_pieces_and_none_is_lost(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "PIECE", 10)
    sizes: list[int] = []

    def gate(call: str, path: str, size: int) -> None:
        if call == "write":
            sizes.append(size)

    data = bytes(range(size))
    with disk.gated(gate):
        writer = disk.Writer(str(tmp_path / "x"))
        assert writer.write(data) == size
        writer.sync(), writer.close(), writer.close()
    assert (tmp_path / "x").read_bytes() == data
    assert sizes == [10] * (size // 10) + ([size % 10] if size % 10 else [])


@pytest.mark.parametrize("keep", [0, 1, 4])
def test_of_a_torn_write_the_first_bytes_arrive(tmp_path: Path, keep: int) -> None:
    def gate(call: str, path: str, size: int) -> None:
        if call == "write":
            raise disk.Torn(keep, OSError(errno.EIO, "torn"))

    writer = disk.Writer(str(tmp_path / "x"))
    with disk.gated(gate), pytest.raises(OSError, match="torn"):
        writer.write(b"abcd")
    writer.close()
    assert (tmp_path / "x").read_bytes() == b"abcd"[:keep]


def test_gates_are_nested_and_the_last_call_is_remembered(tmp_path: Path) -> None:
    seen: list[str] = []
    with disk.gated(lambda call, path, size: seen.append(f"outer {call}")):
        with disk.gated(lambda call, path, size: seen.append(f"inner {call}")):
            disk.names(str(tmp_path))
        disk.remove(str(tmp_path / "none"))
    disk.make_folder(str(tmp_path / "a" / "b"))
    assert seen == ["inner list", "outer remove"] and disk.last_call() == f"mkdir {tmp_path}/a/b"


def test_a_folder_is_made_once_and_its_names_are_in_order(tmp_path: Path) -> None:
    for _ in range(2):
        disk.make_folder(str(tmp_path / "a"))
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    for name in ("b", "a", "c"):
        (tmp_path / "a" / name).touch()
    assert disk.names(str(tmp_path / "a")) == ["a", "b", "c"]
    assert disk.names(str(tmp_path / "none")) == disk.names(str(tmp_path / "a" / "b")) == []
    disk.remove_tree(str(tmp_path / "none"))


def test_a_link_stays_a_link_when_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    disk.write_atomically(tmp_path / "link", lambda file: file.write(b"new"), mode=0o600)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600
    long = tmp_path / ("x" * 255)
    disk.write_atomically(long, lambda file: file.write(b"new"))
    assert long.read_bytes() == b"new"
