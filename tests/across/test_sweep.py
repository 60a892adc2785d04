"""``etude sweep`` of a guest's config reads the results that the guest's own records hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.places import REPOSITORY

pytest.importorskip("optuna", reason="etude sweep needs the extra [sweep]")

SYSTEMS = {
    "mmcv1": ("digits.py", "optimizer.lr=0.01,0.1", "runner.max_epochs=1", "--metric", "accuracy"),
    "mmengine": ("simclr_lars.py", "optim_wrapper.optimizer.lr=0.1,0.3", "train_cfg.max_epochs=1", "train_cfg.val_interval=1"),
    "libai": ("char_transformer.py", "optim.lr=0.001,0.01", "train.train_iter=20", "train.evaluation.eval_period=10"),
    "mcquic": ("photos.yaml", "train.optim.params.lr=1e-3,6e-3", "train.epoch=1", "train.valFreq=1", "train.batchSize=2"),
}  # fmt: skip
#: The result that each config keeps its best checkpoint by, and whether it should fall.
BEST = {"mmcv1": ("accuracy", False), "mmengine": ("probe/accuracy", False), "libai": ("bits", True), "mcquic": ("PSNR", False)}  # fmt: skip


def _thorough(name: str) -> pytest.ParameterSet:
    return pytest.param(name, marks=pytest.mark.thorough)  # each trial imports torch anew


@pytest.mark.parametrize("system", ["libai", *map(_thorough, ("mmcv1", "mmengine", "mcquic"))])
def test_a_sweep_ranks_the_trials_by_what_the_guest_recorded(system: str, tmp_path: Path) -> None:
    if system == "mcquic":
        for folder in ("tiles", "photos"):
            (tmp_path / folder).mkdir()
            pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / "one.png")
    config, *words = SYSTEMS[system]
    found = str(REPOSITORY / "examples" / system / config)

    command = [sys.executable, "-m", "etude", "sweep", found, *words, "--folder", "sweep"]
    done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [one["state"] for one in results] == ["complete", "complete"]
    values = [one["value"] for one in results]
    name, lower = BEST[system]
    assert values == sorted(values, reverse=not lower)
    assert json.loads((tmp_path / "sweep/sweep.json").read_text())["metric"] == name


def test_a_metric_that_no_trial_records_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    config, *words = SYSTEMS["libai"]
    found = str(REPOSITORY / "examples/libai" / config)
    command = [sys.executable, "-m", "etude", "sweep", found, *words, "--folder", "sweep", "--metric", "bit"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "the runs record no 'bit' on validation data; did you mean 'bits'?" in done.stderr
