"""A run that is killed with SIGKILL and resumed ends in the same bits as one that is not: everything is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mmengine.lives import Die, differences, live, remains
from tests.sampling import sample

EPOCHS: dict[str, Any] = {"by_epoch": True, "saves": {"interval": 1}}
INSIDE: dict[str, Any] = {"by_epoch": True, "saves": {"interval": 3, "by_epoch": False}, "workers": 2}
ITERATIONS: dict[str, Any] = {"by_epoch": False, "saves": {"interval": 5, "by_epoch": False}}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The remains of runs that were left alone, each run once."""
    known: dict[str, Any] = {}

    def of(options: dict[str, Any]) -> Any:
        name = repr(options)
        if name not in known:
            folder = tmp_path_factory.mktemp("whole")
            assert live(folder, **options) == 0
            known[name] = remains(folder)
        return known[name]

    return of


@pytest.mark.parametrize(
    ("options", "die", "changed"),
    sample(
        [
            pytest.param(EPOCHS, Die(17), {}, id="inside an epoch, saved at its start"),
            pytest.param(EPOCHS, Die(16, "before_val_iter"), {}, id="in a validation"),
            pytest.param(EPOCHS, Die(16, "after_val"), {}, id="after a validation"),
            pytest.param(EPOCHS, Die(16, "before_save_checkpoint"), {}, id="in a save"),
            pytest.param(EPOCHS | {"workers": 2, "persistent": True}, Die(18), {}, id="workers that persist"),
            pytest.param(INSIDE, Die(18), {"workers": 0}, id="two workers, then none"),
            pytest.param(INSIDE, Die(11), {"workers": 1, "persistent": True}, id="two workers, then one that persists"),
            pytest.param(ITERATIONS, Die(10, "before_val_iter"), {}, id="iterations, in a validation"),
            pytest.param(ITERATIONS | {"accumulate": 3}, Die(9), {}, id="inside a group of accumulated gradients"),
            pytest.param(
                ITERATIONS | {"workers": 1, "sampler": "InfiniteSampler"}, Die(17), {}, id="data without end, a worker"
            ),
            pytest.param(ITERATIONS | {"world": 2, "accumulate": 3, "workers": 1}, Die(13), {}, id="two processes"),
        ],
        (1, 3, 5, 10),
    ),
)
def test_the_same_remains_after_a_kill(
    options: dict[str, Any], die: Die, changed: dict[str, Any], uninterrupted: Any, tmp_path: Path
) -> None:
    whole = uninterrupted(options)
    assert live(tmp_path, **options, hooks=[die]) == -9
    assert live(tmp_path, **(options | changed), resume=True) == 0
    assert differences(whole, remains(tmp_path)) == []
