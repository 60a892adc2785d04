"""Configs of other systems obey signals and time limits, save in their own layout, and end in the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import zygote

from .dialects import LIVES, LOOPING, SMALL

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SMALL)
def test_a_run_of_many_short_lives_is_the_same_run(name: str) -> None:
    done = zygote.run("-m", "tests.faults.dialects", name, cwd=ROOT, check=True)
    result = json.loads(done.stdout)
    assert result["codes"] == [code for _, code in LIVES], result["said"]
    assert result["differs"] is None and result["steps"][0] == result["steps"][1] >= 11
    stopped = [said for said, code in zip(result["said"], result["codes"], strict=True) if code > 0]
    for said, word in zip(stopped, ("SIGTERM", "Ctrl-C", "SIGUSR1", "time is up"), strict=True):
        last = said.splitlines()[-1]
        assert word in last and "saved" in last and "--resume" in last
    assert result["full"] == [0, True, None], "a disk that is full once costs that one save"
    assert result["nan"][1] is not None, "the loss that was to be none arrived"
    if name in LOOPING:
        codes, said = result["loop"]
        assert codes == [3, 3, 3, 1] and "3 failures at step 3, giving up" in said
