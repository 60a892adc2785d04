"""Two runs compared: the first difference is reported, and nothing in their folders changes."""

from __future__ import annotations

import torch

from etude.checkpoint.store import Store
from etude.checkpoint.tools.same_runs import compare_runs, steps_of


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
