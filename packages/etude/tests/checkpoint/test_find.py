"""Which checkpoint a path, a name or a run stands for."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
import torch

from etude.checkpoint.find import find, find_best, is_native, kept_elsewhere
from etude.checkpoint.store import Store
from etude.errors import NoCheckpoint, ResumeError

from .conftest import small_state

NAMES = [f"step-00000000{step}" for step in (3, 6, 9)]


@pytest.fixture
def run() -> str:
    """A run with three checkpoints, of which the second is the best by accuracy, and the third by loss."""
    store = Store("run/checkpoints")
    for step, accuracy, loss in ((3, 0.1, 0.9), (6, 0.5, 0.5), (9, 0.2, 0.1)):
        store.save(small_state(step), step=step, metrics={"accuracy": accuracy, "loss": loss})
    store.close()
    return "run"


def test_a_run_its_folder_and_its_pointer_stand_for_the_newest(run: str) -> None:
    newest = f"{run}/checkpoints/{NAMES[-1]}"
    for path in (run, f"{run}/", f"{run}/checkpoints", f"{run}/checkpoints/latest", newest, f"{newest}/"):
        assert os.path.normpath(find(path)) == newest
    assert find(f"{run}/checkpoints/{NAMES[0]}") == f"{run}/checkpoints/{NAMES[0]}"
    assert find(NAMES[1], within=f"{run}/checkpoints") == f"{run}/checkpoints/{NAMES[1]}"


def test_a_file_is_itself_also_where_a_checkpoint_has_its_name(run: str) -> None:
    Path("latest").write_text("weights.pth")
    Path("weights.pth").touch()
    Path(NAMES[1]).touch()
    assert find("weights.pth") == "weights.pth"
    assert find(NAMES[1], within=f"{run}/checkpoints") == NAMES[1]
    with pytest.raises(ResumeError, match=r"names 'weights\.pth', and there is no such checkpoint in its folder"):
        find("latest")
    Path("latest").write_text("step-000000004")
    with pytest.raises(ResumeError, match="no such checkpoint"):
        find("latest")


def test_what_is_not_there_is_answered_with_what_is(run: str) -> None:
    folder = f"{run}/checkpoints"
    with pytest.raises(NoCheckpoint, match=f"{folder} has {', '.join(NAMES)}; did you mean {NAMES[2]}"):
        find(f"{folder}/step-00000009")
    with pytest.raises(NoCheckpoint, match=rf"no such file or checkpoint; {folder} has {NAMES[0]}.*$"):
        find("step-00000009", within=folder)
    with pytest.raises(NoCheckpoint, match="--resume without a path takes the newest"):
        find("weights.pth", within="empty")
    with pytest.raises(NoCheckpoint, match="no such file or checkpoint$"):
        find("weights.pth")
    with pytest.raises(NoCheckpoint, match="checkpoint, nor a folder nowhere$"):
        find("nowhere/weights.pth")


def test_the_six_newest_names_are_listed_at_most() -> None:
    for step in range(8):
        Path(f"checkpoints/step-00000000{step}").mkdir(parents=True)
    with pytest.raises(NoCheckpoint) as caught:
        find("checkpoints/other")
    assert str(caught.value).count("step-") == 6 and "step-000000002" in str(caught.value)


def test_a_run_that_keeps_its_checkpoints_elsewhere_says_where() -> None:
    Path("run").mkdir()
    assert find("run") == "run" and kept_elsewhere("run") == ""
    Path("run/plan.yaml").write_text("checkpoint: {folder: s3://bucket/run}")
    assert kept_elsewhere("run") == "s3://bucket/run"
    with pytest.raises(NoCheckpoint, match="run keeps its checkpoints in s3://bucket/run"):
        find("run")
    for text in ("checkpoint: {folder: }", "checkpoint: 3", "[", "{}"):
        Path("run/plan.yaml").write_text(text)
        assert kept_elsewhere("run") == ""


def test_the_best_is_what_the_pointer_says_or_a_metric(run: str) -> None:
    folder = f"{run}/checkpoints"
    assert find_best(run, "accuracy") == f"{folder}/{NAMES[1]}" and find_best(folder, "loss") == f"{folder}/{NAMES[2]}"
    with pytest.raises(NoCheckpoint, match=r"does not say which checkpoint is best; name a metric \(accuracy, loss\)"):
        find_best(run)
    with pytest.raises(NoCheckpoint, match="has a metric 'acuracy'; did you mean 'accuracy'"):
        find_best(run, "acuracy")
    Path(folder, "best").write_text(NAMES[0])
    assert find_best(run) == f"{folder}/{NAMES[0]}" and find_best(run, "accuracy") == f"{folder}/{NAMES[1]}"


def test_a_run_without_metrics_has_no_best() -> None:
    store = Store("run/checkpoints")
    store.save(small_state(), step=1)
    store.close()
    with pytest.raises(NoCheckpoint, match="which checkpoint is best; it has no metrics"):
        find_best("run")


def test_the_best_of_another_system_has_its_name() -> None:
    with pytest.raises(NoCheckpoint, match="no such run"):
        find_best("work")
    Path("work").mkdir()
    with pytest.raises(NoCheckpoint, match="no such run, or it has no checkpoint"):
        find_best("work")
    for name in ("epoch_1", "epoch_2", "best_accuracy_epoch_2"):
        torch.save({"meta": {"iter": 4}, "state_dict": {}}, f"work/{name}.pth")
    assert find_best("work") == find_best("work", "accuracy") == os.path.abspath("work/best_accuracy_epoch_2.pth")
    with pytest.raises(NoCheckpoint, match="the best by loss; kept as best: best_accuracy_epoch_2.pth"):
        find_best("work", "loss")
    torch.save({"meta": {"iter": 4}, "state_dict": {}}, "work/best_loss_epoch_1.pth")
    assert os.path.basename(find_best("work", "loss")) == "best_loss_epoch_1.pth"
    with pytest.raises(NoCheckpoint, match="no single checkpoint is the best; kept as best: best_acc.*, best_loss"):
        find_best("work")
    assert os.path.basename(find("work")) == "epoch_2.pth"


def test_a_native_checkpoint_is_known_by_its_manifest_or_its_name(run: str) -> None:
    assert is_native(f"{run}/checkpoints/{NAMES[0]}") and not is_native(run) and not is_native(f"{run}/checkpoints")
    os.rename(f"{run}/checkpoints/{NAMES[0]}", "other")
    assert is_native("other")
    Path("step-000000001").mkdir()
    assert is_native("step-000000001") and not is_native("step-000000002")


def test_looking_for_a_checkpoint_removes_nothing(run: str) -> None:
    for folder in (f"{run}/checkpoints", "other"):
        Path(folder, ".step-000000012.tmp-1").mkdir(parents=True)
    find(run), find("other"), find_best(run, "loss")
    with pytest.raises(NoCheckpoint):
        find_best("other")
    for folder in (f"{run}/checkpoints", "other"):
        assert Path(folder, ".step-000000012.tmp-1").exists()


def test_a_slash_at_the_end_changes_nothing(run: str) -> None:
    assert find(f"{run}/checkpoints/latest/") == f"{run}/checkpoints/{NAMES[-1]}"
    assert find(f"{run}//") == find(run)


def test_weights_alone_are_found_where_nothing_else_is() -> None:
    store = Store("run/checkpoints")
    for step in (3, 12, 6):
        store.save(small_state(step), step=step, weights_only=True)
    store.close()
    assert find("run/checkpoints") == "run/checkpoints/weights-000000012"
    store.save(small_state(1), step=1)
    store.close()
    assert find("run/checkpoints") == "run/checkpoints/step-000000001"


def test_a_name_is_looked_for_in_a_folder_elsewhere_and_a_url_is_what_it_says() -> None:
    folder = f"memory://{uuid.uuid4().hex}/run/checkpoints"
    store = Store(folder)
    for step in (3, 6):
        store.save(small_state(step), step=step)
    store.close()
    assert find("step-000000003", within=folder) == f"{folder}/step-000000003"
    with pytest.raises(NoCheckpoint):
        find("step-000000004", within=folder)
    newest = f"{folder}/step-000000006"
    assert find(folder) == find(f"{folder}/") == find(folder.removesuffix("/checkpoints")) == find(newest) == newest
    assert find(f"{folder}/model.pth") == f"{folder}/model.pth"
    Path("step-000000003").touch()
    assert find("step-000000003", within=folder) == "step-000000003"
