"""A small project in a folder: a config, the parts that it names, and how to read what became of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import yaml

from etude.checkpoint.warm_start import read_weights

HERE = Path(__file__).parent
CONFIG: dict[str, Any] = {
    "imports": ["job.py"],
    "model": {"type": "job.Net"},
    "loss": "CrossEntropyLoss",
    "data": {
        "train": {"dataset": {"type": "job.Shaky", "size": 150}, "batch_size": 32},
        "val": {"dataset": {"type": "job.Shaky", "split": "val", "size": 101, "noise": 0.0}, "batch_size": 25},
    },
    "optim": {"type": "AdamW", "lr": 0.01, "clip_norm": 1.0},
    "train": {"epochs": 4, "threads": 1},
    "metrics": ["Accuracy"],
    "checkpoint": {"every": "4step", "keep": 3},
    "log": {"every": "3step"},
}


def make(folder: Path, **changes: Any) -> Path:
    """Write the project with sections of its config changed; returns ``folder``."""
    shutil.copy(HERE / "job.py", folder / "job.py")
    sections = {key: {**value, **changes.pop(key)} if isinstance(value, dict) and key in changes else value
                for key, value in CONFIG.items()}  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump({**sections, **changes}))
    return folder


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_weights(run)


def same_bits(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return records(one) == records(other) and all(torch.equal(a[name], b[name]) for name in a)


def distance(one: Path, other: Path) -> float:
    """The largest difference between weights, and between recorded losses."""
    a, b = weights(one), weights(other)
    losses = [(x["loss"], y["loss"]) for x, y in zip(records(one), records(other), strict=True)]
    return max(*((a[name] - b[name]).abs().max().item() for name in a), *(abs(x - y) for x, y in losses))
