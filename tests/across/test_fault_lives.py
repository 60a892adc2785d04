"""Configs of other systems obey signals and time limits, save in their own layout, and end in the same bits."""

from __future__ import annotations

import json

import pytest

from tests import zygote
from tests.across.fault_lives import LIVES, LOOPING, SMALL, SOME_DISASTERS, SOME_LIVES, disasters_of, lives_of
from tests.places import REPOSITORY
from tests.sampling import sample

ROOT = REPOSITORY


def test_every_kind_of_end_is_met_by_a_system_and_a_kill_by_each() -> None:
    assert {place for places in SOME_LIVES.values() for place in places} == set(range(len(LIVES)))
    assert {one for some in SOME_DISASTERS.values() for one in some} == {"full", "nan"}
    for name in SMALL:
        assert -9 in [code for _, code, _ in lives_of(name)]


@pytest.mark.parametrize("name", sample(SMALL, (0,)))  # tests/across kills the others
def test_a_run_of_many_short_lives_is_the_same_run(name: str) -> None:
    done = zygote.run("-m", "tests.across.fault_lives", name, cwd=ROOT, check=True)
    result = json.loads(done.stdout)
    lives = lives_of(name)
    assert result["codes"] == [code for _, code, _ in lives], result["said"]
    assert result["differs"] is None and result["steps"][0] == result["steps"][1] >= 11
    for said, (_, code, word) in zip(result["said"], lives, strict=True):
        last = said.splitlines()[-1] if code > 0 else ""
        assert code <= 0 or (word in last and "saved" in last and "--resume" in last)
    if "full" in disasters_of(name):
        assert result["full"] == [0, True, None], "a disk that is full once costs that one save"
    if "nan" in disasters_of(name):
        assert result["nan"][1] is not None, "the loss that was to be none arrived"
    if name in LOOPING:
        codes, said = result["loop"]
        assert codes == [3, 3, 3, 1] and "3 failures at step 3, giving up" in said
