"""Tells code for mmcv 1.x from code for mmcv 2.x and MMEngine: both import ``mmcv``."""

from __future__ import annotations

import re
import sys

from etude.dialects import ownership
from etude.dialects.imports import MissingOriginal

_PROJECTS = r"(?m)^\s*(?:from|import)\s+(mm(?!cv\b|engine\b)\w+)"
_NEW_WORLD = r"(?m)^\s*(?:from|import)\s[^#\n]*\b(?:mmengine|mmcv\.transforms)\b"


def takes_mmcv2() -> bool:
    """Return whether the original mmcv 2.x is to be imported, because code of MMEngine's world asks for it."""
    if ownership.original("mmcv") is None or not wants_mmcv2():
        return False
    if ownership.generation("mmcv") < 2:
        text = f"this code is written for mmcv 2.x, but mmcv {ownership.version('mmcv')} is installed"
        raise MissingOriginal(f"{text} at {ownership.original('mmcv')}; pip install mmcv-lite", name="mmcv")
    return True


def wants_mmcv2() -> bool:
    """Return whether the code that imports ``mmcv`` now expects mmcv 2.x.

    It does when ``mmengine`` has been imported, or when the file with the import statement imports it, too, or a
    project that is written for it.
    """
    if "mmengine" in sys.modules:
        return True
    file = ownership.importer()
    text = ownership.text_of(file) if not file.startswith("<") else _command()
    return bool(re.search(_NEW_WORLD, text)) or any(map(is_of_mmengine, set(re.findall(_PROJECTS, text))))


def _command() -> str:
    """Return the code of ``python -c``, a statement per line."""
    words = sys.orig_argv
    return words[words.index("-c") + 1].replace(";", "\n") if "-c" in words[:-1] else ""


def is_of_mmengine(package: str) -> bool:
    """Return whether the installed project is written for MMEngine, as mmcls 1.x and mmdet 3.x are."""
    if not package or ownership.original(package) is None:
        return False
    if ownership.generation(package) >= {"mmdet": 3}.get(package, 1):
        return True
    folder = ownership.original(package)
    files = [f"{folder}/__init__.py", f"{folder}/registry.py"] if folder is not None else []
    return any(re.search(r"\bmmengine\b", ownership.text_of(file)) for file in files)
