"""Lays out a folder as a user of MMClassification or MMTracking has it, and reads what a training left there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.projects import tiny

CONFIGS = Path(__file__).parent
#: Configs of ``tests/projects/mmcls`` and of ``tests/projects/mmtrack`` that are recorded, by their names.
NAMES = ("resnet", "folder", "vit", "swin", "precise", "rsb")
TRACKING = ("reid", "retinanet", "siamese", "yolox")


#: Trains the config in ``sys.argv[1]`` by ``etude train``, by the script in ``sys.argv[2]`` on ``etude exec``, and by code of
#: the user, each in a fork of a process that has imported the project once; into ``train/``, ``exec/`` and ``own/``.
#: The rest of ``sys.argv`` are options of both commands. ``WAYS`` in the environment may name fewer ways.
THREE_WAYS = """\
import os, sys
import etude.compat

etude.compat.install()
from mmcv import Config
{imports}
from etude.cli import main

config, script, *options = sys.argv[1:]

def own():
    cfg = Config.fromfile(config)
    cfg.work_dir, cfg.gpu_ids, cfg.seed, cfg.device = "own", [0], 1, "cpu"
    set_random_seed(1)
{lines}

options += ["--seed", "1", "--work-dir"]
ways = {{
    "train": lambda: main(["train", config, *options, "train"]),
    "exec": lambda: main(["exec", script, config, *options, "exec"]),
    "own": own,
}}
for way in os.environ.get("WAYS", "train exec own").split():
    if (child := os.fork()) == 0:
        os._exit(ways[way]() or 0)
    assert os.waitpid(child, 0)[1] == 0, way
"""


def lay_out(root: Path, site: Path) -> None:
    """Put ``tools/`` and ``configs/`` of the installed mmcls, tiny data and the configs of the tests into ``root``."""
    for name in ("tools", "configs"):
        (root / name).symlink_to(site / "mmcls" / ".mim" / name)
    tiny.write_cifar(root)
    tiny.write_images(root / "data" / "folder")
    _copy(CONFIGS / "mmcls", root)


def lay_out_tracking(root: Path, mmtrack: Path, mmdet: Path) -> None:
    """Do the same for MMTracking; the folders of MMDetection are ``det_configs/`` and ``det_tools/``."""
    for name in ("tools", "configs"):
        (root / name).symlink_to(mmtrack / "mmtrack/.mim" / name)
        (root / f"det_{name}").symlink_to(mmdet / "mmdet/.mim" / name)
    tiny.write_coco(root / "data/coco")
    tiny.write_people(root / "data/MOT17/reid", pictures=1)
    tiny.write_videos(root / "data/ILSVRC")
    tiny.write_track(root / "data/lasot")
    _copy(CONFIGS / "mmtrack", root)


def _copy(configs: Path, root: Path) -> None:
    for config in configs.glob("*.py"):
        (root / config.name).write_text(config.read_text())


def digest(checkpoint: Path, *, trusted: bool = False) -> str:
    """Return a digest of all weights. A plain ``torch.load`` reads the file and executes nothing, unless ``trusted``."""
    sha = hashlib.sha256()
    for name, tensor in torch.load(checkpoint, weights_only=not trusted)["state_dict"].items():
        sha.update(name.encode() + tensor.numpy().tobytes())
    return sha.hexdigest()


def losses(folder: Path) -> list[float]:
    """Return the losses that the log of a run has, in order."""
    lines = [json.loads(line) for file in sorted(folder.glob("*.log.json")) for line in file.read_text().splitlines()]
    return [line["loss"] for line in lines if line.get("mode") == "train"]


def result(folder: Path, *, trusted: bool = False) -> dict[str, Any]:
    return {"digest": digest(folder / "epoch_2.pth", trusted=trusted), "losses": losses(folder)}


def machine() -> str:
    """Return what has to be equal for two runs to be equal to the last bit.

    Processors with the same instructions round differently all the same: torch's libraries choose kernels by the model.
    """
    known = Path("/proc/cpuinfo")
    lines = known.read_text().partition("\n\n")[0].splitlines() if known.is_file() else []
    facts = dict(map(str.strip, line.split(":", 1)) for line in lines)
    model = " ".join(facts.get(key, "?") for key in ("vendor_id", "cpu family", "model"))
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {model}"


def assert_as_recorded(name: str, folder: Path) -> None:
    """Compare a run with the recording called ``name``: to the last bit on the machine that recorded it."""
    found, recorded = result(folder), json.loads((CONFIGS / "recorded.json").read_text())
    if name in recorded.get(machine(), {}):
        assert found == recorded[machine()][name]
    else:  # other kernels round differently, and a few steps later a net with batch norms has other losses
        others = [one[name]["losses"] for one in recorded.values() if name in one]
        assert len(found["losses"]) == len(others[0])
        assert any(found["losses"][:2] == pytest.approx(other[:2], rel=1e-3) for other in others), found["losses"]
