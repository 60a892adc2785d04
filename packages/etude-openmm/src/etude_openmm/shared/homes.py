"""Finds the project that a config file belongs to: any package for mmcv or MMEngine. Imports no torch."""

from __future__ import annotations

import os
import re
from functools import cache

from etude.dialects import ownership
from etude_openmm.shared.generations import is_of_mmengine

_ENGINES = ("mmcv", "mmengine")
_IMPORTS_ENGINE = r"(?m)^\s*(?:import|from)\s+(?:mmcv|mmengine)\b"


def home(file: str) -> str:
    """Return the package whose checkout (``configs/``) or wheel (``.mim/configs``) has a config; empty for none."""
    path = os.path.dirname(os.path.realpath(file))
    folder = path
    while os.path.dirname(folder) != folder:
        above, name = os.path.split(folder)
        if name not in _ENGINES and os.path.isfile(os.path.join(folder, "__init__.py")) and is_project(name):
            return name
        configs = os.path.join(folder, "configs")
        if f"{path}{os.sep}".startswith(configs + os.sep):
            found = [package for package in _packages_in(folder) if is_project(package)]
            if found:
                return found[0]
        folder = above
    return ""


@cache
def is_project(package: str) -> bool:
    """Return whether ``package`` is installed or checked out, and written for mmcv or MMEngine."""
    folder = ownership.original(package) if package.isidentifier() and package not in _ENGINES else None
    if folder is None:
        return False
    known = ownership.has_marks(package)
    return known or re.search(_IMPORTS_ENGINE, ownership.text_of(os.path.join(folder, "__init__.py"))) is not None


@cache
def is_project_v1(package: str) -> bool:
    """Return whether ``package`` is installed or checked out, and written for mmcv 1.x."""
    return is_project(package) and not is_of_mmengine(package)


def _packages_in(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(one.name for one in entries if os.path.isfile(os.path.join(one.path, "__init__.py")))
