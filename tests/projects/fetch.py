"""Installs the real projects, each into a folder of its own: ``python tests/projects/fetch.py [NAME …]``.

The folders are the cache: one that is complete is not touched again. They lie beside the repository's other caches, in
``$ETUDE_PROJECTS`` or ``~/.cache/etude-projects``, so that every checkout shares them.
"""

from __future__ import annotations

import compileall
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
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
    "mmseg-0.30.0": ("mmsegmentation==0.30.0", "prettytable==3.18.0", "wcwidth==0.9.4"),
    "mmcv-lite-2.0.1": ("mmcv-lite==2.0.1",),
    "mmcv-lite-2.2.0": ("mmcv-lite==2.2.0",),
    "mmpretrain-1.2.0": ("mmpretrain==1.2.0",),
    "mmselfsup-1.0.0": ("mmselfsup==1.0.0", "mmcls==1.0.0rc6"),
    # What the two import beside mmcv, mmengine and torchvision.
    "mmpretrain-needs": (
        "addict==2.4.0", "attrs==26.1.0", "einops==0.8.2", "importlib-metadata==8.9.0", "mat4py==0.6.0",
        "model-index==0.1.11", "ordered-set==4.1.0", "tabulate==0.10.0", "zipp==4.1.2",
    ),
    # What the original engine imports; only for recording with it.
    "mmengine-needs": ("platformdirs==4.14.5", "setuptools==79.0.1", "termcolor==3.3.0", "yapf==0.43.0"),
    "mmengine-0.10.7": ("mmengine==0.10.7",),
    "libai-needs": (
        "termcolor==3.3.0", "tabulate==0.10.0", "regex==2026.11.9", "sentencepiece==0.2.2", "portalocker==4.4.2",
        "tqdm==4.70.1",
    ),
    "mcquic-needs": ("marshmallow==3.26.2", "msgpack==1.2.4"),
    # What McQuic's own trainer imports; only to exchange checkpoints with it.
    "vlutils-0.1.28": ("vlutils==0.1.28", "nvidia-ml-py==13.615.71"),
    "opencv": ("opencv-python-headless==4.13.0.92",),
    # MMTracking imports it. This release is the newest whose Python part can be used without its compiled ops, which are
    # built for one torch alone: the tests run with Étude's ops in plain torch, whatever torch is there.
    "torchvision-0.15.2": ("torchvision==0.15.2",),
}  # fmt: skip


#: Folder → a source distribution whose setup fails or compiles, and its checksum. It is only unpacked.
SOURCES: dict[str, tuple[str, str]] = {
    "libai-0.1.1": ("LiBai-0.1.1.tar.gz", "833b2ce2ef59a343cd4968f1301096d333482b8f31cdd7b5097cbac84f1821e2"),
    # Image transforms, Mixup and losses that LiBai's image configs name.
    "flowvision-0.1.0": ("flowvision-0.1.0.tar.gz", "94dfdb226b830d4e91d8d2d35e5cf7684c5f895f52bd7d9daa8864bfae929143"),
    "mcquic-0.1.40": ("mcquic-0.1.40.tar.gz", "1b373cfb1a16fc29f1a7f8667fc9582bcec6aee9a9ad8feb4e1ac137e16f767b"),
    "flowvision-0.2.2": ("flowvision-0.2.2.tar.gz", "104be064115322d64160a5a2cbc080333362459ab6a0015d675b4bf9a99f3010"),
    # The original engine; only for recording with it.
    "mmcv-1.7.2": ("mmcv-1.7.2.tar.gz", "2116a1609f9d3f59824074774366fd8b9410437bc95a24d535669b35d55352be"),
}


def folder(name: str) -> Path:
    """Return the folder of ``PINS[name]``; it is there after :func:`fetch`."""
    return CACHE / f"{name}-py{sys.version_info[0]}{sys.version_info[1]}"


def fetch(name: str) -> Path:
    """Install ``PINS[name]`` unless the same pins have been installed before, and return the folder."""
    if name in SOURCES:
        return _unpacked(name)
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


def _unpacked(name: str) -> Path:
    target, (file, checksum) = folder(name), SOURCES[name]
    stamp = target / ".pins"
    if stamp.is_file() and stamp.read_text() == checksum:
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        with urllib.request.urlopen(_address(file), timeout=60) as source:
            content = source.read()
        if hashlib.sha256(content).hexdigest() != checksum:
            raise ValueError(f"{file} of your package index is not the one that was pinned")
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(made, filter="data")
        (inside,) = Path(made).iterdir()
        compileall.compile_dir(inside, quiet=2)  # as pip does with what it installs
        (inside / ".pins").write_text(checksum)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(inside, target)
    return target


def _address(file: str) -> str:
    """Return where pip's package index has ``file``.

    ``pip download`` would also run the setup of a source distribution, which fails for these. The log of ``pip index`` has the link.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", file.partition("-")[0], "-vvv"]
    log = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    if link := re.search(rf"\S+/{re.escape(file)}(?=#|\s)", log):
        return link[0]
    raise urllib.error.URLError(f"the package index has no {file}")


if __name__ == "__main__":
    for one in sys.argv[1:] or [*PINS, *SOURCES]:
        print(fetch(one))
