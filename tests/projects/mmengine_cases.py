"""Small runs of MMPretrain and MMSelfSup, and what the original engine made of them.

The recordings come from the real mmengine 0.10.7 on the same torch, in this repository's root::

    python -m tests.projects.mmengine_cases [NAME …]

For the original, an empty module stands for ``mmselfsup.engine.runner``, which MMSelfSup's registries name and which does
not exist: mmengine 0.10.7 does not start without it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.projects import tiny
from tests.projects.checkout import machine

HERE = Path(__file__).parent
CONFIGS = HERE / "mmengine_configs"
RECORDED = HERE / "mmengine_recorded.json"
#: mmcv-lite needs mmengine, so it is on every user's machine: kinds of data samples come from it.
PRETRAIN = (
    "mmpretrain-1.2.0", "mmcv-lite-2.0.1", "mmengine-0.10.7", "mmpretrain-needs", "opencv", "torchvision-0.15.2",
)  # fmt: skip
SELFSUP = ("mmselfsup-1.0.0", *PRETRAIN[1:])
ENGINE = ("mmengine-0.10.7", "mmengine-needs", "mmpretrain-needs")

_CIFAR = '''\
from mmpretrain.datasets import CIFAR10
from mmpretrain.registry import DATASETS


@DATASETS.register_module()
class TinyCIFAR10(CIFAR10):
    """CIFAR in one small file without a checksum."""

    train_list = [["data_batch_1", None]]

    def _check_integrity(self):
        return True
'''
_ORIGINAL = """\
import runpy, sys, types
sys.modules["mmselfsup.engine.runner"] = types.ModuleType("mmselfsup.engine.runner")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob("*.py"))


def pins(name: str) -> tuple[str, ...]:
    """Return the packages that the case ``name`` needs, without an engine."""
    return PRETRAIN if name.startswith("pretrain") else SELFSUP


def train_script(folders: tuple[Path, ...], name: str) -> str:
    """Return the project's own ``tools/train.py``."""
    package = "mmpretrain" if name.startswith("pretrain") else "mmselfsup"
    return str(folders[0] / package / ".mim" / "tools" / "train.py")


def write(folder: Path) -> None:
    """Write data, a module of the user's own and the configs into ``folder``."""
    tiny.write_cifar(folder)
    tiny.write_images(folder / "data" / "images")
    (folder / "tiny_cifar.py").write_text(_CIFAR)
    (folder / "original.py").write_text(_ORIGINAL)
    lists = folder / "data" / "images" / "meta"
    lists.mkdir()
    for split in ("train", "val"):
        files = sorted((folder / "data" / "images" / split).glob("*/*.png"))
        lines = [f"{file.parent.name}/{file.name} {file.parent.name[1:]}\n" for file in files]
        (lists / f"{split}.txt").write_text("".join(lines))
    shutil.copytree(CONFIGS, folder / "configs", ignore=shutil.ignore_patterns("__pycache__"))


def outcome(work_dir: Path, *, trusted: bool = False) -> dict[str, Any]:
    """Return what a run left: a digest of its last weights, its losses and accuracies."""
    last = max(work_dir.glob("epoch_*.pth"), key=lambda path: int(path.stem.partition("_")[2]))
    weights = torch.load(last, map_location="cpu", weights_only=not trusted)["state_dict"]
    digest = hashlib.sha256()
    for key in sorted(weights):
        digest.update(key.encode() + weights[key].contiguous().numpy().tobytes())
    newest = max(glob.glob(f"{work_dir}/*/vis_data/scalars.json"), key=os.path.getmtime)
    rows = [json.loads(line) for line in Path(newest).read_text().splitlines()]
    return {
        "weights": digest.hexdigest(),
        "losses": [row["loss"] for row in rows if "loss" in row],
        "accuracies": [row["accuracy/top1"] for row in rows if "accuracy/top1" in row],
    }


def record(chosen: list[str]) -> None:
    """Run the cases that are named, or all, on the original engine and write what they leave."""
    from tests.projects.conftest import Projects, fetched

    everywhere = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    recorded = everywhere.setdefault(machine(), {})  # kernels of another machine round differently
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder)
        engine = fetched(ENGINE)
        sys.path[:0] = [str(path) for path in engine]
        for name in chosen:
            folders = fetched(pins(name))
            run = Projects((folder, *folders, *engine), folder).run(
                "original.py", train_script(folders, name), f"configs/{name}.py", "--work-dir", f"out/{name}"
            )
            assert run.returncode == 0, run.stderr
            recorded[name] = outcome(folder / "out" / name, trusted=True)
            print(name, recorded[name]["losses"])
            RECORDED.write_text(json.dumps(everywhere, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record(sys.argv[1:] or names())
