"""A small project in McQuic's style: a folder of pictures and a config."""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

MODEL = Path(__file__).parents[4] / "examples/mcquic/compressor.py"
CONFIG = {
    "model": {"key": "compressor.Compressor", "params": {"channel": 8, "m": 2, "k": [16, 8]}},
    "train": {
        "batchSize": 4, "epoch": 3, "valFreq": 2, "trainSet": "photos", "valSet": "photos", "saveDir": "saved",
        "target": "PSNR", "optim": {"key": "Adam", "params": {"lr": 0.01}},
        "schdr": {"key": "Exponential", "params": {"gamma": 0.5}}, "gpu": {"gpus": 1, "vRam": -1, "wantsMore": False},
    },
}  # fmt: skip


def pictures(folder: Path, count: int = 4, side: int = 64) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(MODEL, folder.parent)
    rng = np.random.default_rng(0)
    for index in range(count):
        rough = rng.integers(0, 255, (side // 8, side // 8, 3), dtype=np.uint8)
        Image.fromarray(rough).resize((side, side)).save(folder / f"{index}.png")


def config(**changes) -> dict:
    values = deepcopy(CONFIG)
    values["train"] |= changes
    return values


def write(folder: Path, count: int = 4, **changes) -> str:
    """Write ``count`` pictures, and the config with ``changes`` of its section ``train``."""
    pictures(folder / "photos", count)
    (folder / "config.yaml").write_text(yaml.safe_dump(config(**changes)))
    return "config.yaml"
