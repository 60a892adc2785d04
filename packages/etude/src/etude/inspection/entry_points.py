"""Reads the entry points of installed distributions, for dialects of other packages.

``importlib.metadata`` gives the same, but importing it takes as long as a third of ``etude check``.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from functools import cache
from typing import Any

from etude.errors import UserError

_POINT = re.compile(r"^\s*([\w.-]+)\s*=\s*([\w.]+(?::[\w.]+)?)", re.MULTILINE)


@cache
def entry_points(group: str) -> dict[str, str]:
    """Return name → value, ``module`` or ``module:attribute``. Of several distributions, the first on the path wins."""
    found: dict[str, str] = {}
    for folder in sys.path:
        for file in _metadata(folder or os.getcwd()):
            section = file.partition(f"[{group}]")[2].partition("\n[")[0]
            found = dict(_POINT.findall(section)) | found
    return found


@cache
def _metadata(folder: str) -> tuple[str, ...]:
    """Return the texts of all ``entry_points.txt`` in a folder that mention Étude."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return ()
    texts = []
    for name in sorted(names):
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                content = file.read()
        except OSError:
            continue
        if b"[etude." in content:
            texts.append(content.decode(errors="replace"))
    return tuple(texts)


def load_entry_points(group: str) -> dict[str, Any]:
    """Return name → its object. Raise if one cannot be imported: it belongs to an installed package."""
    return {name: _loaded(group, name, value) for name, value in entry_points(group).items()}


def _loaded(group: str, name: str, value: str) -> Any:
    module, _, attribute = value.partition(":")
    try:
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise UserError(f"{group}: {name!r} ({value}) cannot be loaded: {text}") from error
