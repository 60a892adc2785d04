from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.store import Store
from etude.checkpoint.tools.same_runs import compare_runs, steps_of
from etude.cli import main
from tests.checkpoint.conftest import small_state
from tests.places import EXAMPLES
from tests.sampling import sample

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
    assert code == 0 and "the same bits after 14 steps and 1 resume" in capsys.readouterr().out


LEAKY = """
import etude

class Leaky(etude.Hook):
    count = 0
    def after_step(self, run):
        self.count += 1
        run.model.state_dict()["layers.0.bias"].add_(0.01 * self.count)
"""


def test_a_hook_that_forgets_is_caught_and_a_run_without_checkpoints_proves_nothing(
    tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "leaky.py").write_text(LEAKY)
    config = tmp_path / "config.yaml"
    config.write_text(f"imports: [leaky.py]\n{CONFIG.replace('{type: EMA, momentum: 0.1}', 'leaky.Leaky')}")
    words = ["verify-resume", str(config), "--kills", "1", "--limit-batches", "5", "train.epochs=1"]
    assert main([*words, "checkpoint.every=1step"]) == 1
    assert "NOT the same" in capsys.readouterr().out
    assert main([*words, "checkpoint.every=5step"]) == 1
    said = capsys.readouterr().out
    assert "this proves nothing: up to step 4 there was no checkpoint" in said
    assert re.search(r"save more often \(.*config.yaml:\d+\), or train longer", said)


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


@pytest.mark.thorough  # tests/faults kills every dialect, too
@pytest.mark.parametrize(
    ("example", "words", "steps"),
    sample([
        ("mmcv1/digits.py", ["runner.max_epochs=2", "data.samples_per_gpu=64", "seed=None"], 6),
        ("mmengine/simclr_lars.py", ["train_cfg.max_epochs=2", "param_scheduler=[]", "train_dataloader.batch_size=64",
                                     "default_hooks.checkpoint.interval=1"], 6),
    ], (0,)),
)  # fmt: skip
def test_configs_of_other_systems_are_proved_too(example: str, words: list[str], steps: int, capsys: Any) -> None:
    """Without a seed, too: both runs are given one."""
    code = main(["verify-resume", str(EXAMPLES / example), *words, "--kills", "1", "--limit-batches", "3"])
    said = capsys.readouterr().out.splitlines()
    assert (code, said[-1]) == (0, f"the same bits after {steps} steps and 1 resume")
    assert (said[0] == "the config has no seed: all runs get --seed=0") == ("seed=None" in words)


def foreign_run(folder: Path, layout: str, weight: float) -> Path:
    folder.mkdir(parents=True)
    weights = {"w": torch.full((2,), weight)}
    times = {"time": folder.name, "iter": 7, "hook_msgs": {"last_ckpt": str(folder / "x.pth")}}
    if layout == "libai":
        (folder / "model_final").mkdir()
        torch.save(weights, folder / "model_final" / "model")
        torch.save({"iter": 6, "storage": {"latest": {"time": [weight]}}}, folder / "model_final" / "trainer")
        (folder / "last_checkpoint").write_text("model_final")
    elif layout == "mcquic":
        (folder / "latest").mkdir()
        config = {"train": {"saveDir": str(folder)}}
        torch.save({"trainer": {"_step": 7, "_model": weights}, "config": config}, folder / "latest" / "last.ckpt")
    else:
        torch.save({"meta": times, "state_dict": weights}, folder / "epoch_1.pth")
        if layout == "mmengine":
            (folder / "last_checkpoint").write_text(str(folder / "epoch_1.pth"))
    return folder


@pytest.mark.parametrize("layout", ["mmcv1", "mmengine", "libai", "mcquic"])
def test_in_every_layout_a_weight_is_compared_and_a_time_is_not(tmp_path: Path, layout: str) -> None:
    calm = foreign_run(tmp_path / "calm", layout, 1.0)
    assert steps_of(calm) == 7
    assert compare_runs(calm, foreign_run(tmp_path / "same", layout, 1.0)) is None
    assert "largest difference 0.5" in str(compare_runs(calm, foreign_run(tmp_path / "other", layout, 1.5)))


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("optim.type=SDG", 2, "no optimizer is called 'SDG'"),
        ("+imports=[parts.py]", 3, "parts.py raised ValueError: no"),
    ],
)
def test_a_training_that_fails_ends_the_proof_with_its_own_code(
    tmp_path: Path, capsys: Any, change: str, code: int, words: str
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "parts.py").write_text("raise ValueError('no')")
    assert main(["verify-resume", str(tmp_path / "config.yaml"), change]) == code
    said = capsys.readouterr().err
    assert words in said and f"ended with exit code {code}" in said and said.count("etude: error:") == 1


def test_a_missing_config_is_said(capsys: Any) -> None:
    assert main(["verify-resume", "nowhere.yaml"]) == 2
    assert "no file nowhere.yaml" in capsys.readouterr().err
