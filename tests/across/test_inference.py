"""``etude predict``, ``etude export`` and ``etude.load`` for runs of guests, from the folder of the run alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import etude
from tests.places import REPOSITORY


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etude", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def trained(system: str, config: str, *words: str, cwd: Path) -> None:
    done = run("train", str(REPOSITORY / "examples" / system / config), *words, "-q", cwd=cwd)
    assert done.returncode == 0, done.stderr


def test_a_libai_run_predicts_its_test_data_and_becomes_a_program(tmp_path: Path) -> None:
    trained("libai", "char_transformer.py", "train.train_iter=2", "train.output_dir=out", cwd=tmp_path)

    done = run("predict", "out", "-o", "found.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [row["sample"] for row in rows] == list(range(len(rows)))
    assert np.shape(rows[0]["prediction_scores"]) == (64, 100)
    done = run("export", "out", "-o", "model.pt2", cwd=tmp_path)
    assert done.returncode == 0 and "differs from the model by at most" in done.stdout, done.stderr

    told = run("predict", "out", "train", "-o", "found.jsonl", cwd=tmp_path)
    assert told.returncode == 2 and "dataloader.test" in told.stderr


def test_a_run_of_mcquic_restores_pictures_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("tiles", "photos"):
        (tmp_path / folder).mkdir()
        pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / folder / "one.png")
    trained("mcquic", "photos.yaml", "train.epoch=1", "train.batchSize=2", cwd=tmp_path)

    done = run("predict", "saved/latest", "photos", "-o", "found.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = (json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines())
    assert row["sample"] == "photos/one.png" and row["PSNR"] > 0 and row["BPP"] > 0
    monkeypatch.chdir(tmp_path)
    model = etude.load("saved/latest")
    saved = torch.load(model.etude.checkpoint, weights_only=False)["trainer"]["_model"]
    assert not model.training
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
