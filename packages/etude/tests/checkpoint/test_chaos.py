"""How planned faults are written, and who hears of the points that the engine passes."""

from __future__ import annotations

import pytest

from etude.checkpoint.storage import chaos
from etude.errors import ConfigError


def test_faults_are_read_and_written_in_the_same_words() -> None:
    text = "kill@step=37,enospc@save=2,nan@step=1,rank=1"
    assert ",".join(map(str, chaos.parse(text, rank=1, size=2))) == text
    assert list(map(str, chaos.parse(text + ", ", rank=0, size=2))) == ["kill@step=37", "enospc@save=2"]
    assert chaos.parse("kill@step=1,rank=0")[0].rank == 0 and chaos.parse("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kill", "'kill' is not a fault"), ("kil@step=1", "no fault is called 'kil'"), ("nan@save=1", "cannot happen there"),
        ("kill@step=0", "never comes"), ("kill@step=1,rank=2", "there is no rank 2"),
    ],
)  # fmt: skip
def test_what_cannot_happen_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chaos.parse(text, size=2)


def test_a_point_is_heard_by_who_listens_to_it_and_no_longer() -> None:
    heard: list[object] = []
    chaos.listen("save.done", lambda path: heard.append(path))
    chaos.listen("save.end", lambda: heard.append("end"))
    try:
        with chaos.saving("a"):
            pass
        with pytest.raises(ValueError), chaos.saving("b"):
            raise ValueError
    finally:
        chaos.listen("save.done", None)
        chaos.listen("save.end", None)
        chaos.listen("never.heard", None)
    with chaos.saving("c"):
        pass
    assert heard == ["a", "end", "end"]
