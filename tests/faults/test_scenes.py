from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scenes() -> dict[str, dict[str, Any]]:
    """All scenes, played once in one process that has imported torch once."""
    command = [sys.executable, "-m", "tests.faults.scenes"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    played = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-3000:]
    return {result["name"]: result | {"errors": done.stderr} for result in played}


#: Fault → exit code of the life that met it.
CODES = {
    "sigterm": 143, "sigterm twice": 143, "ctrl-c": 130, "usr1": 75, "exception": 1, "nan": 4, "no space once": 0,
    "bad disk once": 0, "killed in a save": -9, "bit flipped": 1, "worker dies": 5, "sigterm in evaluation": 143,
    "killed in evaluation": -9, "exception in evaluation": 1, "exception with debug": 1, "second starter": 2, "hangup": 0,
    "disk full": 6, "read-only": 6, "all damaged": 7, "model changed": 7, "existing run": 2,
    "resume from an older one": -9,
}  # fmt: skip


@pytest.mark.parametrize("name", CODES)
def test_the_exit_code_tells_what_happened_and_a_resume_ends_in_the_same_bits(
    scenes: dict[str, dict[str, Any]], name: str
) -> None:
    result = scenes[name]
    assert (result["code"], result["resumed"], result["differs"]) == (CODES[name], 0, [])


def test_a_stop_saves_the_last_step_and_says_so(scenes: dict[str, dict[str, Any]]) -> None:
    assert "stopped by SIGTERM at step 11" in scenes["sigterm"]["said"]
    assert scenes["sigterm"]["kept"][-1] == "step-000000011"
    assert "resumed from step 11" in scenes["sigterm"]["later"]
    assert "Ctrl-C again to quit without saving" in scenes["ctrl-c"]["errors"]


def test_training_before_an_evaluation_that_ends_badly_is_not_lost(scenes: dict[str, dict[str, Any]]) -> None:
    assert "stopped by SIGTERM in the evaluation after step 18" in scenes["sigterm in evaluation"]["said"]
    assert "resumed from step 18" in scenes["sigterm in evaluation"]["later"]
    assert "resumed from step 18" in scenes["exception in evaluation"]["later"]


def test_a_second_signal_stops_at_once_without_harm(scenes: dict[str, dict[str, Any]]) -> None:
    assert scenes["sigterm twice"]["kept"][-1].startswith("step-000000009")


def test_a_loss_that_is_nan_leaves_no_checkpoint_after_it(scenes: dict[str, dict[str, Any]]) -> None:
    assert scenes["nan"]["kept"][-1].startswith("step-000000009")
    assert "last good checkpoint" in scenes["nan"]["said"]


def test_a_failed_save_is_reported_at_the_next_step(scenes: dict[str, dict[str, Any]]) -> None:
    assert "step 6 was not saved: no space: need" in scenes["no space once"]["said"]
    assert "step 6 was not saved: EIO" in scenes["bad disk once"]["said"]
    assert "3 saves in a row have failed" in scenes["disk full"]["said"]


def test_unfinished_and_damaged_checkpoints_are_named(scenes: dict[str, dict[str, Any]]) -> None:
    assert "removed unfinished checkpoint .step-000000009.tmp-" in scenes["killed in a save"]["later"]
    assert "checksum of model.safetensors differs" in scenes["bit flipped"]["later"]


def test_nothing_starts_again_at_step_0_unasked(scenes: dict[str, dict[str, Any]]) -> None:
    assert scenes["all damaged"]["untouched"] and scenes["all damaged"]["restarted"] == 0


def test_the_state_and_the_batch_of_an_exception_are_kept_on_request(scenes: dict[str, dict[str, Any]]) -> None:
    assert {"batch", "model", "optimizer"} <= set(scenes["exception with debug"]["parts"])
    assert scenes["exception with debug"]["batch"] == [6, 8]


def test_a_resume_reads_no_sample_that_was_used_before(scenes: dict[str, dict[str, Any]]) -> None:
    assert scenes["time does not grow"]["asked"] == 50 - 7 * 6 and scenes["time does not grow"]["step"] == 9


def test_a_finished_run_stays_finished(scenes: dict[str, dict[str, Any]]) -> None:
    assert (scenes["finished"]["resumed"], scenes["finished"]["differs"]) == (0, [])
