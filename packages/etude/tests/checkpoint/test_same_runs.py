"""Two runs compared: the first difference is reported, and nothing in their folders changes."""

from __future__ import annotations

import shutil

import pytest
import torch

from etude.checkpoint.store import Store
from etude.checkpoint.tools.same_runs import compare_runs, saved_steps, steps_of
from etude.errors import UserError


def run_with(folder, *weights, lines=("{}",)):
    with_store = Store(folder / "checkpoints")
    for step, weight in enumerate(weights, start=1):
        with_store.save({"model": {"w": torch.tensor(weight)}, "hook.Timer.x": {"seconds": weight * 7}}, step=step)
        with_store.wait()
    with_store.close()
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_first_difference_is_reported_with_its_step(tmp_path):
    left = run_with(tmp_path / "left", 1.0, 2.0, 3.0)
    assert compare_runs(left, run_with(tmp_path / "same", 1.0, 2.0, 3.0)) is None
    found = compare_runs(left, run_with(tmp_path / "other", 1.0, 2.5, 3.5))
    assert found is not None and found.startswith("step 2: model.w\n  - ")
    assert compare_runs(left, run_with(tmp_path / "short", 1.0)) == "the runs ended at step 3 and at step 1"
    found = compare_runs(left, run_with(tmp_path / "records", 1.0, 2.0, 3.0, lines=("{}", "{}")))
    assert found == "metrics.jsonl has 1 and 2 lines"
    found = compare_runs(left, run_with(tmp_path / "line", 1.0, 2.0, 3.0, lines=("{1}",)))
    assert found == "metrics.jsonl, line 1:\n  - {}\n  + {1}"
    assert steps_of(left) == 3


def test_a_comparison_only_reads_also_while_a_run_is_writing(tmp_path):
    left, right = run_with(tmp_path / "left", 1.0), run_with(tmp_path / "right", 1.0)
    writing = Store(left / "checkpoints")
    before = contents(tmp_path)
    assert compare_runs(left, right) is None
    assert contents(tmp_path) == before
    writing.close()


def test_the_steps_of_a_run_of_another_system_are_those_of_its_last_file(tmp_path):
    torch.save({"meta": {"iter": 8}, "state_dict": {}}, tmp_path / "epoch_2.pth")
    torch.save({"meta": {"iter": 4}, "state_dict": {}}, tmp_path / "epoch_1.pth")
    assert steps_of(tmp_path) == saved_steps(tmp_path) == 8


def test_a_run_without_a_checkpoint_has_no_steps_to_resume_from(tmp_path):
    assert saved_steps(tmp_path) == 0
    with pytest.raises(UserError, match="holds no checkpoint; does the config save any"):
        steps_of(tmp_path)
    (tmp_path / "epoch_1.pth").write_bytes(b"damaged")
    assert saved_steps(tmp_path) == 0


def test_the_last_files_of_other_systems_are_compared(tmp_path):
    for name, weight in (("left", 1.0), ("same", 1.0), ("other", 2.0)):
        (tmp_path / name).mkdir()
        torch.save({"meta": {"iter": 8}, "state_dict": {"w": torch.tensor(weight)}}, tmp_path / name / "epoch_2.pth")
    assert compare_runs(tmp_path / "left", tmp_path / "same") is None
    found = compare_runs(tmp_path / "left", tmp_path / "other")
    assert found is not None and found.startswith("the last checkpoint: state_dict.w\n")


def test_only_steps_that_both_runs_kept_are_compared(tmp_path):
    left, right = run_with(tmp_path / "left", 1.0, 2.0, 3.0), run_with(tmp_path / "right", 9.0, 2.0, 3.0)
    shutil.rmtree(right / "checkpoints" / "step-000000001")
    assert compare_runs(left, right) is None
