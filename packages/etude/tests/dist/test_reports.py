"""What ranks report of themselves, on a disk that has no room left."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from etude.dist.jobs import reports, slots


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of a disk with a few inodes, to which this process reports."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(tmp_path).encode(), b"tmpfs", 0, b"size=200k,nr_inodes=6"):
        pytest.skip("only root can mount a disk")
    monkeypatch.setenv(reports.FOLDER, str(tmp_path))
    yield tmp_path
    assert libc.umount2(str(tmp_path).encode(), 2) == 0


def _fill(room: Path) -> None:
    """Take all inodes and all blocks."""
    with pytest.raises(OSError, match="No space left"), open(room / "large", "wb") as file:
        while file.write(b"x" * 4096):
            file.flush()
    with pytest.raises(OSError, match="No space left"):
        for number in range(100):
            (room / f"small-{number}").touch()


def test_a_rank_reports_its_steps_on_a_full_disk(room):
    """It was blamed: `has not moved after step 0`, because no new file could be made."""
    reports.beat(step=0, doing="trains")
    _fill(room)
    reports.beat(step=25, doing="loads data", stack="x" * 100_000)
    (beat,) = reports.read_beats(room).values()
    assert (beat.step, beat.doing, beat.pid) == (25, "loads data", os.getpid())
    assert 1000 < len(beat.stack) < 100_000
    assert reports.silence(beat) < 60


def test_a_report_that_was_torn_leaves_the_one_before(tmp_path):
    path = tmp_path / "beat-0.json"
    for number in range(3):
        slots.write(path, {"step": number}, number)
    assert slots.read(path) == {"step": 2}
    raw = bytearray(path.read_bytes())
    raw[3:9] = b"\0" * 6
    path.write_bytes(raw)
    assert slots.read(path) == {"step": 1}
    path.write_bytes(b" " * len(raw))
    assert slots.read(path) is None
