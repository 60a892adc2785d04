"""Collects versions and the source of loaded user modules, so that ranks with different code are noticed."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import torch

from etude import __version__
from etude.errors.advice import is_library


def versions() -> dict[str, str]:
    return {"etude": __version__, "torch": torch.__version__, "python": sys.version.split()[0]}


def of_user() -> dict[str, str]:
    """Map each user-defined module to the checksum of its file."""
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or is_library(path):
            continue
        if name not in ("__main__", "__mp_main__"):
            found[f"code of {name}"] = _checksum(path)
    return found


def _checksum(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    except OSError:
        return "cannot be read"
