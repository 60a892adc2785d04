from __future__ import annotations

import fcntl
import json
from typing import Any

import pytest

from tests import zygote
from tests.faults.scenes import SIBLINGS
from tests.places import REPOSITORY
from tests.sampling import ALL, sample

ROOT = REPOSITORY


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, dict[str, Any]]:
    """All scenes, played once, also when several workers of pytest share these tests."""
    base = tmp_path_factory.getbasetemp()
    file = (base if worker_id == "master" else base.parent) / "scenes.json"
    with open(file, "a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        if not file.stat().st_size:
            done = zygote.run("-m", "tests.faults.scenes", cwd=ROOT, check=True)
            played = [json.loads(line) for line in done.stdout.splitlines()]
            json.dump({result["name"]: result | {"errors": done.stderr} for result in played}, shared)
            shared.flush()
    found: dict[str, dict[str, Any]] = json.loads(file.read_text())
    return found


#: Fault → exit code of the life that met it.
CODES = {
    "sigterm": 143, "sigterm twice": 143, "ctrl-c": 130, "usr1": 75, "exception": 1, "nan": 4, "no space once": 0,
    "bad disk once": 0, "killed in a save": -9, "bad sample": 5, "bad sample of a worker": 5, "bad sample of a stream": 5, "bit flipped": -9, "worker dies": 5, "sigterm in evaluation": 143,
    "sigterm in evaluation within a step": 143, "sigterm in evaluation of an epoch's last step": 143,
    "sigterm in evaluation of the last step": 143, "sigterm in a validation epoch": 143,
    "exception in evaluation within a step": 1,
    "killed in evaluation": -9, "exception in evaluation": 1, "exception with debug": 1, "second starter": 2, "hangup": 0,
    "disk full": 6, "read-only": 6, "all damaged": 7, "model changed": 7, "existing run": 2,
    "resume from an older one": -9, "worker dies in a save": 5, "sigterm in a save": 143,
    "sigterm before the first step": 143,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CODES if ALL or name not in SIBLINGS])
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


def test_an_evaluation_within_a_step_is_abandoned_and_done_by_the_resumed_run(
    scenes: dict[str, dict[str, Any]],
) -> None:
    """Not finished first, not left out, not recorded twice: ``metrics.jsonl`` is among what is compared above."""
    result = scenes["sigterm in evaluation within a step"]
    assert "stopped by SIGTERM in the evaluation after step 14" in result["said"]
    assert "step 14/31  val" not in result["said"] and "step 14/31  val" in result["later"]
    assert result["kept"][-1] == "step-000000014" and "resumed from step 14" in result["later"]
    assert "resumed from step 14" in scenes["exception in evaluation within a step"]["later"]


def test_a_run_that_always_dies_at_the_same_step_is_given_up(scenes: dict[str, dict[str, Any]]) -> None:
    """However it dies; until someone says that the cause is mended. Progress counts anew, a good end forgets."""
    result = scenes["crash loop"]
    assert result["codes"] == [3, -9, -9]
    for code, said in result["refused"]:
        assert code == 1 and "error: 3 failures at step 7, giving up; see run/log.txt" in said and "--retry" in said
    assert result["kept"] and (result["retried"], result["finished"], result["gone"]) == (3, 0, True)


#: Point → the step of the newest checkpoint after a hook of the user has raised there; the run saves every 4 steps.
LEFT = {
    "before_run": 0, "before_train": 0, "before_epoch": 6, "before_step": 5, "after_forward": 4, "before_update": 4,
    "after_step": 6, "before_eval": 6, "before_eval_step": 6, "after_eval_step": 6, "after_eval": 6, "after_epoch": 6,
    "before_save": 6, "after_train": 12, "after_run": 12,
}  # fmt: skip


@pytest.mark.parametrize("point", sample(LEFT, (0, 2, 4, 8, 12, 14)))  # SOME_POINTS of scenes.py
def test_a_hook_that_raises_is_named_and_costs_no_step_that_was_done(
    scenes: dict[str, dict[str, Any]], point: str
) -> None:
    """Between steps the state is saved at once; inside one it is not. The others still see the end, once."""
    result = scenes["hooks that raise"]["points"][point]
    assert result["code"] == 3 and f"raised RuntimeError at {point}, step" in result["said"]
    assert "in end" in result["said"], "the user's own traceback"
    newest = int(result["kept"][-1].partition(".")[0].removeprefix("step-")) if result["kept"] else 0
    assert (newest, result["ended"]) == (LEFT[point], int(point != "before_run"))
    assert (result["resumed"], result["differs"]) == (0, None)


@pytest.mark.parametrize(("point", "left"), [("before_step", 5), ("after_step", 6)])
def test_a_hook_that_has_changed_its_own_state_when_it_raises_costs_no_step_either(
    scenes: dict[str, dict[str, Any]], point: str, left: int
) -> None:
    """Its state of before is saved, so that it acts once all the same."""
    result = scenes["hooks that raise with a state"]["points"][point]
    newest = int(result["kept"][-1].partition(".")[0].removeprefix("step-"))
    assert (result["code"], newest, result["resumed"], result["differs"]) == (3, left, 0, None)


def test_a_state_too_large_to_be_copied_at_every_step_is_told_with_what_it_costs(
    scenes: dict[str, dict[str, Any]],
) -> None:
    code, said = scenes["hooks that raise with a state"]["large"]
    lost = "step-000000004; 2 steps are to be repeated: hook Keeps keeps more than is copied at every step"
    assert code == 3 and lost in said


def test_a_hook_that_raises_after_loading_or_beside_an_error_does_no_harm(scenes: dict[str, dict[str, Any]]) -> None:
    result = scenes["hooks that raise at rare points"]
    code, said = result["loading"]
    assert code == 3 and "hook Deadly (" in said and "raised RuntimeError at after_load, step 6" in said
    code, said = result["beside"]
    assert (
        code == 3
        and "etude: warning: hook Deadly failed at on_error, step 5" in said
        and "raised RuntimeError at after_step, step 6" in said
    )
    assert result["untouched"] and result["resumed"] == [0, 0] and result["differs"] == [None, None]


def test_a_signal_in_a_save_lets_it_finish_and_before_the_first_step_there_is_nothing_to_save(
    scenes: dict[str, dict[str, Any]],
) -> None:
    kept = scenes["sigterm in a save"]["kept"]
    assert "step-000000006" in kept and "stopped by SIGTERM at step" in scenes["sigterm in a save"]["said"]
    assert scenes["sigterm before the first step"]["kept"] == []
    assert "no checkpoint yet, starting at step 0" in scenes["sigterm before the first step"]["later"]


@pytest.mark.parametrize(
    ("name", "step"), [("bad sample", 7), ("bad sample of a worker", 4), ("bad sample of a stream", 7)]
)
def test_the_steps_before_a_batch_that_cannot_be_had_are_saved(
    scenes: dict[str, dict[str, Any]], name: str, step: int
) -> None:
    """Though the run itself saves every three steps."""
    assert scenes[name]["kept"][-1] == f"step-{step:09}"


def test_a_worker_that_dies_while_a_save_is_written_does_not_tear_it(scenes: dict[str, dict[str, Any]]) -> None:
    assert scenes["worker dies in a save"]["kept"][-1] >= "step-000000006"


def test_a_log_that_nobody_reads_any_more_is_no_reason_to_stop(scenes: dict[str, dict[str, Any]]) -> None:
    assert (scenes["reader of the log gone"]["code"], scenes["reader of the log gone"]["steps"]) == (0, 12)


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
    assert scenes["time does not grow"]["asked"] == 50 - 6 * 6 and scenes["time does not grow"]["step"] == 9


def test_a_finished_run_stays_finished(scenes: dict[str, dict[str, Any]]) -> None:
    assert (scenes["finished"]["resumed"], scenes["finished"]["differs"]) == (0, [])
