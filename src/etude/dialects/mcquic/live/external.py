"""``externalLib``: Python files that register things, imported under the MD5 of their absolute path."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from collections.abc import Iterable
from pathlib import Path

_log = logging.getLogger("mcquic")


def module_name(path: str | Path) -> str:
    """The MD5 of the absolute path as it is written: neither ``..`` nor links are resolved."""
    return hashlib.md5(str(Path(path).absolute()).encode(), usedforsecurity=False).hexdigest()


def import_external(paths: Iterable[str]) -> list[str]:
    """Import every file in order and return the names of the modules. Other files are reported and left out."""
    names = []
    for path in paths:
        name = module_name(path)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            _log.warning("externalLib: %s is not a Python file and was left out", path)
            continue
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        names.append(name)
    return names
