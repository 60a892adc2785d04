"""Lays out a folder as a user of MMClassification has it, and reads what a training left there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from tests.projects import tiny

CONFIGS = Path(__file__).parent / "mmcls"
#: Configs of ``tests/projects/mmcls``; the recordings have the same names.
NAMES = ("resnet", "folder", "vit")


def lay_out(root: Path, site: Path) -> None:
    """Put ``tools/`` and ``configs/`` of the installed mmcls, tiny data and the configs of the tests into ``root``."""
    for name in ("tools", "configs"):
        (root / name).symlink_to(site / "mmcls" / ".mim" / name)
    tiny.write_cifar(root)
    tiny.write_images(root / "data" / "folder")
    for name in NAMES:
        (root / f"{name}.py").write_text((CONFIGS / f"{name}.py").read_text())


def digest(checkpoint: Path) -> str:
    """Return a digest of all weights. The file is read by a plain ``torch.load``, which executes nothing."""
    sha = hashlib.sha256()
    for name, tensor in torch.load(checkpoint)["state_dict"].items():
        sha.update(name.encode() + tensor.numpy().tobytes())
    return sha.hexdigest()


def losses(folder: Path) -> list[float]:
    """Return the losses that the log of a run has, in order."""
    lines = [json.loads(line) for file in sorted(folder.glob("*.log.json")) for line in file.read_text().splitlines()]
    return [line["loss"] for line in lines if line.get("mode") == "train"]


def result(folder: Path) -> dict[str, Any]:
    return {"digest": digest(folder / "epoch_2.pth"), "losses": losses(folder)}


def machine() -> str:
    """Return what has to be equal for two runs to be equal to the last bit."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
