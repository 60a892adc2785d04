"""Which name a checkpoint gets, how its files are summed up, and how long it is waited for."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path

import pytest

from etude.checkpoint.snapshot import File
from etude.checkpoint.storage import disk
from etude.checkpoint.storage.places import LocalDisk
from etude.checkpoint.write import free_name, quietly, wait_for, write_files
from etude.errors import SaveError


@pytest.mark.parametrize(
    ("there", "name"),
    [
        ([], "a-1"), (["a-1"], "a-1.1"), (["a-1", "a-1.1"], "a-1.2"), (["a-1.9", "a-1.10"], "a-1.11"), (["a-1.3"], "a-1.4"),
        (["a-2", "a-12", "b-1"], "a-1"), (["a-1x", "a-1.x", "a-1."], "a-1"), (["a-1.0"], "a-1.1"),
    ],
)  # fmt: skip
def test_a_name_that_is_taken_gets_the_next_number(tmp_path: Path, there: list[str], name: str) -> None:
    for one in there:
        (tmp_path / one).mkdir()
    assert free_name(LocalDisk(), str(tmp_path), "a-1") == name


def test_files_are_written_in_their_pieces_and_summed_up(tmp_path: Path) -> None:
    files = [File("a", (memoryview(b"one"), memoryview(b"two"))), File("b", ()), File("c", (memoryview(b""),))]
    stored = write_files(LocalDisk(), str(tmp_path), files)
    assert [(name, one.size) for name, one in stored.items()] == [("a", 6), ("b", 0), ("c", 0)]
    for name, one in stored.items():
        assert one.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert (tmp_path / "a").read_bytes() == b"onetwo"


def test_all_files_are_written_before_the_first_is_synced(tmp_path: Path) -> None:
    calls: list[str] = []
    with disk.gated(lambda call, path, size: calls.append(f"{call} {Path(path).name}")):
        write_files(LocalDisk(), str(tmp_path), [File("a", (memoryview(b"1"),)), File("b", (memoryview(b"2"),))])
    assert calls == ["create a", "write a", "create b", "write b", "fsync a", "fsync b"]


def test_what_is_done_is_not_waited_for_and_what_is_not_is_given_up() -> None:
    done, lines = threading.Event(), list[str]()
    with pytest.raises(SaveError, match=r"^a save has been waited for 0 s, at .*; giving up$"):
        wait_for(done, "a save", patience=0.01, say=lines.append)
    done.set()
    wait_for(done, "a save", patience=0.0, say=lines.append)
    assert lines == []


def test_clean_up_hides_errors_of_the_disk_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> None:
        raise error

    quietly(lambda path: fail(OSError("busy")), "x")
    assert re.search("x could not be removed: busy", caplog.text)
    with pytest.raises(ValueError):
        quietly(lambda path: fail(ValueError()), "x")
