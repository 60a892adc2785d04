from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from etude.checkpoint.retention import Retention
from etude.checkpoint.store import Store
from etude.checkpoint.tools.listing import newest_run, prune, rows
from etude.errors import UserError

from .conftest import small_state


def test_a_line_has_the_step_the_metrics_and_which_one_is_best(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step, loss in ((3, 0.5), (6, 0.25)):
        store.save(small_state(step), step=step, epoch=step // 3, metrics={"loss": loss})
    store.close()
    (tmp_path / "best").write_text("step-000000006\n")
    assert [(row[0], row[1], row[2], row[5]) for row in rows(str(tmp_path))] == [
        ("step-000000003", "3", "1", "loss 0.5"),
        ("step-000000006", "6", "2", "loss 0.25  (best)"),
    ]


def saved(folder: str, *steps: int) -> list[str]:
    store = Store(folder)
    for step in steps:
        store.save(small_state(step), step=step, metrics={"loss": 1.0 / step})
    store.close()
    return [f"step-{step:09d}" for step in steps]


def test_pruning_deletes_what_the_rule_does_not_keep_and_leaves_what_is_damaged() -> None:
    names = saved("c", 1, 2, 3, 4)
    os.remove(f"c/{names[2]}/model.safetensors")
    Path("c/aside-x").mkdir()
    dry = prune("c", Retention(last=1), dry=True, aside=True)
    assert dry.gone == [names[0], names[1], "aside-x"] and len(os.listdir("c")) >= 5
    assert len(dry.left) == 1 and dry.left[0].startswith(f"{names[2]}: ")
    done = prune("c", Retention(last=1))
    assert done.gone == names[:2] and sorted(name for name in os.listdir("c") if "step-" in name) == names[2:]
    assert Path("c/aside-x").exists()
    with pytest.raises(UserError, match="is one checkpoint; pass its folder"):
        prune(f"c/{names[3]}", Retention(last=1))
    with pytest.raises(UserError, match="no checkpoint has the metric 'los'; did you mean 'loss'"):
        prune("c", Retention(last=1, best=1, metric="los"))


def test_pruning_the_files_of_another_system_keeps_the_best_and_what_is_pointed_to() -> None:
    Path("w/.etude").mkdir(parents=True)
    for name in ("epoch_1", "epoch_2", "epoch_3", "epoch_4", "best_loss_epoch_1"):
        torch.save({"meta": {"iter": int(name[-1])}, "state_dict": {}}, f"w/{name}.pth")
    Path("w/epoch_2.pth").write_bytes(b"damaged")
    Path("w/last_checkpoint").write_text("epoch_3.pth")
    dry = prune("w", Retention(last=1), dry=True)
    assert dry.gone == ["epoch_1.pth"] and [line.partition(":")[0] for line in dry.left] == ["epoch_2.pth"]
    assert Path("w/epoch_1.pth").exists()
    assert prune("w", Retention(last=1)).gone == ["epoch_1.pth"] and not Path("w/epoch_1.pth").exists()
    assert sorted(os.listdir("w"))[1:] == [
        "best_loss_epoch_1.pth", "epoch_2.pth", "epoch_3.pth", "epoch_4.pth", "last_checkpoint",
    ]  # fmt: skip
    with pytest.raises(UserError, match="do not record a metric"):
        prune("w", Retention(best=1, metric="loss"))


def test_a_folder_without_checkpoints_names_the_newest_run_in_it() -> None:
    with pytest.raises(UserError, match="no run with checkpoints below runs/"):
        newest_run()
    for name in ("b/2024-01-02", "a/2024-01-03"):
        Path(f"runs/{name}/checkpoints").mkdir(parents=True)
    assert newest_run() == "runs/a/2024-01-03"
    for folder, newest in (("runs", "runs/a/2024-01-03"), ("runs/b", "runs/b/2024-01-02")):
        with pytest.raises(UserError, match=f"no checkpoint in {folder}, .*; it holds runs, the newest is {newest}$"):
            prune(folder, Retention(last=1))
    Path("empty").mkdir()
    with pytest.raises(UserError, match="a system that it knows$"):
        rows("empty")
    Path("empty/plan.yaml").write_text("checkpoint: {folder: /far}")
    with pytest.raises(UserError, match="its plan keeps them in /far$"):
        rows("empty")
