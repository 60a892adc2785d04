"""Tests of :mod:`etude.dist.jobs.slots`."""

from __future__ import annotations

import os

from etude.dist.jobs import slots


def test_the_newest_text_is_read_and_a_half_written_one_is_passed_over(tmp_path):
    path = tmp_path / "beat"
    for number in range(3):
        slots.write(path, {"step": number}, number)
        assert slots.read(path) == {"step": number}
    with path.open("r+b") as file:  # the slot of the newest is cut
        file.write(b"x")
    assert slots.read(path) == {"step": 1}


def test_the_longest_text_is_cut_to_the_room_that_there_is(tmp_path):
    path = tmp_path / "beat"
    slots.write(path, {"stack": "x" * 100_000, "step": 4}, 0)
    read = slots.read(path)
    assert read["step"] == 4 and 1000 < len(read["stack"]) < 1 << 14
    assert os.stat(path).st_mode & 0o077 == 0


def test_a_file_without_any_text_has_none(tmp_path):
    (tmp_path / "beat").write_bytes(b"")
    assert slots.read(tmp_path / "beat") is None
