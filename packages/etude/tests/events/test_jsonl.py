"""Records on a disk that is full for a while: no line is torn, none is lost, training does not notice."""

from __future__ import annotations

import json
import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etude.events import jsonl
from etude.events.console import Console
from etude.events.jsonl import Jsonl
from etude.events.record import Events, Record


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Files cannot grow beyond ``size`` bytes in this block: a full disk, as far as a writer can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def record(step: int) -> Record:
    return Record(step, 0, "train", {"loss": step / 7}, 0.0)


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_lines_that_do_not_fit_are_kept_and_written_later(tmp_path: Path) -> None:
    writer = Jsonl(tmp_path / "m.jsonl")
    writer.write(record(1))
    with warnings.catch_warnings(record=True) as said, room_for(writer._offset + 10):
        warnings.simplefilter("always")
        for step in (2, 3, 4):
            writer.write(record(step))
    assert steps(tmp_path / "m.jsonl") == [1], "no line is torn"
    assert len(said) == 1 and "m.jsonl cannot be written" in str(said[0].message)
    state = writer.state_dict()
    writer.write(record(5))
    assert steps(tmp_path / "m.jsonl") == [1, 2, 3, 4, 5]
    writer.load_state_dict(state)
    writer.write(record(5))
    writer.close()
    assert steps(tmp_path / "m.jsonl") == [1, 2, 3, 4, 5], "a checkpoint of that moment knows what was kept"


@pytest.mark.filterwarnings("ignore:.*kept in memory")
def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MOST_KEPT", 200)
    events = Events([Jsonl(tmp_path / "m.jsonl")])
    with pytest.warns(UserWarning, match="switched off; training continues"), room_for(0):
        for step in range(20):
            events.write({"loss": 1.0}, step=step, epoch=0, split="train")
    assert events.writers == []


def test_a_log_without_room_is_given_up_with_one_warning(tmp_path: Path) -> None:
    console = Console(log=tmp_path / "log.txt", quiet=True)
    console.say("first")
    with pytest.warns(UserWarning, match=r"log\.txt cannot be written") as said, room_for(0):
        for _ in range(3):
            console.say("more")
    console.close()
    assert len(said) == 1 and (tmp_path / "log.txt").read_text().endswith("first\n")
