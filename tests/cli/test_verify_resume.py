from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from etude.checkpoint.proof import compare_runs
from etude.checkpoint.store import Store
from etude.cli import main
from tests.checkpoint.conftest import small_state

CONFIG = """
model: {type: MLP, sizes: [64, 16, 10], dropout: 0.1}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64}
  val: {dataset: {type: Digits, split: val}, batch_size: 256}
optim: {type: AdamW, lr: 1e-2}
train: {epochs: 2}
metrics: [Accuracy]
hooks: [{type: EMA, momentum: 0.1}]
checkpoint: {every: 4step, keep: 2, best: accuracy}
log: {every: 3step}
"""


def test_a_config_is_run_killed_resumed_and_compared(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    code = main(["verify-resume", str(tmp_path / "config.yaml"), "--kills", "1", "--limit-batches", "7"])
    assert code == 0 and "the same bits after 14 steps and 1 kills" in capsys.readouterr().out


def finished(folder: Path, **change: float) -> Path:
    store = Store(folder / "checkpoints")
    for step in (1, 2):
        state = small_state(step)
        state["model"]["b"][0] = change.get("bias", 0.0) if step == 2 else 0.0
        store.save(state | {"hook.Timer": {"seconds": torch.rand(1)}}, step=step)
    store.close()
    lines = ['{"step": 1, "loss": 1.0}', f'{{"step": 2, "loss": {change.get("loss", 0.5)}}}']
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    return folder


def test_the_first_thing_that_differs_is_named(tmp_path: Path) -> None:
    calm = finished(tmp_path / "calm")
    assert compare_runs(calm, finished(tmp_path / "same")) is None
    assert "metrics.jsonl, line 2" in str(compare_runs(calm, finished(tmp_path / "loss", loss=0.6)))
    found = str(compare_runs(calm, finished(tmp_path / "bias", bias=0.25)))
    assert found.startswith("step 2: model.b\n") and "largest difference 0.25" in found
    shutil.rmtree(tmp_path / "same" / "checkpoints" / "step-000000002")
    assert "ended at step 2 and at step 1" in str(compare_runs(calm, tmp_path / "same"))


def test_a_missing_config_is_said(capsys: Any) -> None:
    assert main(["verify-resume", "nowhere.yaml"]) == 2
    assert "no file nowhere.yaml" in capsys.readouterr().err
