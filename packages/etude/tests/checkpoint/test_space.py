from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etude.checkpoint.storage import space
from etude.checkpoint.store import Store

from .conftest import small_state


def disk_with(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    given = {"f_frsize": 4096, "f_bsize": 1 << 20, "f_bfree": 10_000, "f_files": 100, "f_favail": 50} | facts
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**given))


@pytest.mark.parametrize(
    ("sizes", "facts", "said"),
    [
        ([412_000_000], {"f_bavail": 20_000}, "need 412 MB, have 81.9 MB"),
        # thirty small files take a block each, and the folder, its manifest and `latest` three more
        ([10] * 30, {"f_bavail": 32}, "need 135 kB, have 131 kB"),
        ([10] * 30, {"f_bavail": 33}, "need 135 kB, have 135 kB now: a quota, or other programs used the space"),
        ([1_000_000], {"f_bavail": 247}, "need 1,015,808 bytes, have 1,011,712 bytes"),
        ([10], {"f_bavail": 10_000}, "need 16.4 kB, have 41.0 MB now: a quota, or other programs used the space"),
        ([10, 10], {"f_bavail": 10_000, "f_favail": 0}, "need 5 new files, have 0 (no inodes are left)"),
        ([10, 10], {"f_bavail": 10_000, "f_favail": 4}, "need 5 new files, have 4 (no inodes are left)"),
    ],
)  # fmt: skip
def test_need_and_room_are_counted_in_blocks(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], facts: dict[str, int], said: str
) -> None:
    disk_with(monkeypatch, **facts)
    assert space.explain("/nowhere/at/all", sizes) == said


def test_nothing_is_said_of_room_that_nobody_knows() -> None:
    assert space.explain("bucket/run", [1_000_000], local=False) == "need 1.0 MB"


def test_the_room_is_that_of_the_nearest_folder_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def statvfs(path: str) -> Any:
        asked.append(path)
        raise OSError

    monkeypatch.setattr(os, "statvfs", statvfs)
    for folder in (tmp_path / "a" / "b", tmp_path, "/nowhere/at/all"):
        assert space.explain(str(folder), [1000]) == "need 1.0 kB"
    assert asked == [str(tmp_path), str(tmp_path), "/"]


def test_a_disk_without_inodes_is_told_as_such(tmp_path: Path) -> None:
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=8", "none", tmp_path]).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        lines: list[str] = []
        store = Store(tmp_path / "checkpoints", say=lines.append)
        for number in range(6 - len(os.listdir(tmp_path))):
            (tmp_path / str(number)).touch()
        store.save(small_state(), step=1)
        store.close()
        assert len(lines) == 1 and "new files, have " in lines[0] and "(no inodes are left); last good:" in lines[0]
    finally:
        subprocess.run(["umount", tmp_path], check=True)
