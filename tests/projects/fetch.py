"""Installs the real projects, each into a folder of its own: ``python tests/projects/fetch.py [NAME …]``.

The folders are the cache: one that is complete is not touched again. They lie beside the repository's other caches, in
``$ETUDE_PROJECTS`` or ``~/.cache/etude-projects``, so that every checkout shares them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("ETUDE_PROJECTS") or Path.home() / ".cache" / "etude-projects")

#: Folder → what ``pip install --no-deps`` puts into it. Another folder means another place on ``PYTHONPATH``: a test
#: takes the folders that it needs, so that two generations of one package can lie side by side.
PINS: dict[str, tuple[str, ...]] = {
    "mmcls-0.25.0": ("mmcls==0.25.0",),
    "mmdet-2.28.2": ("mmdet==2.28.2", "terminaltables==3.1.10", "pycocotools==2.0.11", "six==1.17.0"),
    "mmtrack-0.14.0": (
        "mmtrack==0.14.0", "attributee==0.1.10", "dotty-dict==1.3.1", "lap==0.5.13", "motmetrics==1.4.0",
        "pandas==3.1.1", "seaborn==0.13.2", "tqdm==4.70.1", "xmltodict==1.0.4", "addict==2.4.0",
    ),
    "mmcv-lite-2.2.0": ("mmcv-lite==2.2.0",),
    "mmengine-0.10.7": ("mmengine==0.10.7",),
    "opencv": ("opencv-python-headless==4.13.0.92",),
    # MMTracking imports it. This release is the newest whose Python part can be used without its compiled ops, which are
    # built for one torch alone: the tests run with Étude's ops in plain torch, whatever torch is there.
    "torchvision-0.15.2": ("torchvision==0.15.2",),
}  # fmt: skip


def folder(name: str) -> Path:
    """Return the folder of ``PINS[name]``; it is there after :func:`fetch`."""
    return CACHE / f"{name}-py{sys.version_info[0]}{sys.version_info[1]}"


def fetch(name: str) -> Path:
    """Install ``PINS[name]`` unless the same pins have been installed before, and return the folder."""
    target, wanted = folder(name), "\n".join(PINS[name])
    stamp = target / ".pins"
    if stamp.is_file() and stamp.read_text() == wanted:
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", f"{made}/new", *PINS[name]]
        subprocess.run(command, check=True)
        Path(made, "new", ".pins").write_text(wanted)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(f"{made}/new", target)
    return target


if __name__ == "__main__":
    for one in sys.argv[1:] or PINS:
        print(fetch(one))
