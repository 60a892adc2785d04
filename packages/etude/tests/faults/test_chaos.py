from __future__ import annotations

from pathlib import Path

import pytest

from etude.checkpoint.storage import chaos
from etude.checkpoint.storage.chaos import Fault
from etude.errors import ConfigError
from etude.session.watch.faults import flip_bit


def test_faults_are_read_from_a_list() -> None:
    assert chaos.parse("kill@step=37, enospc@save=2") == (Fault("kill", "step", 37), Fault("enospc", "save", 2))
    assert str(Fault("worker-dies", "batch", 5)) == "worker-dies@batch=5"
    assert chaos.parse("") == ()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("kil@step=3", "did you mean 'kill'"),
        ("kill@batch=3", "kill@step=3 or kill@save=3"),
        ("kill", "write kill@step=37"),
    ],
)
def test_a_misspelt_fault_is_answered(text: str, answer: str) -> None:
    with pytest.raises(ConfigError, match=answer):
        chaos.parse(text)


def test_points_tell_listeners_and_nobody_else() -> None:
    heard: list[str] = []
    chaos.point("save.done", path="x")
    chaos.listen("save.done", lambda path: heard.append(path))
    chaos.point("save.done", path="a")
    chaos.point("save.begin")
    chaos.listen("save.done", None)
    chaos.point("save.done", path="b")
    assert heard == ["a"]


def test_a_flipped_bit_changes_one_byte_and_no_size(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\0" * 9)
    flip_bit(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"\0\0\0\0\1\0\0\0\0"
