"""Steps of runs of other systems can be run again, bitwise as their ledgers have them, and nothing in the run changes."""

from __future__ import annotations

import json

import pytest

from tests import zygote
from tests.across.fault_lives import SMALL
from tests.places import REPOSITORY


@pytest.mark.parametrize("name", SMALL)
def test_a_killed_run_has_the_ledger_of_a_calm_one_and_its_steps_are_run_again(name: str) -> None:
    done = zygote.run("-m", "tests.across.fault_lives", "--replay", name, cwd=REPOSITORY, check=True)
    found = json.loads(done.stdout)
    assert found["codes"] == [0, -9, 0], found["ended"]
    assert found["same"] and found["known"] == [found["known"][2]] * 3, found
    assert found["replayed"] == [0, 0, 0, 0], found["said"]
    assert all("bitwise as in the ledger" in said for said in found["said"][:3]), found["said"]
    assert found["untouched"]
