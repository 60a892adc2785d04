"""``externalLib``: Python files that register things, imported under the MD5 of their absolute path."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from etude.dialects.mcquic.live import hooks, schedulers, tuners
from etude.dialects.mcquic.live.model import blocks, losses
from etude.dialects.mcquic.live.registry import REGISTRIES, LrSchedulerRegistry, OptimizerRegistry
from etude.dialects.mcquic.names import REGISTERED
from etude.registry import resolve

_log = logging.getLogger("mcquic")


def module_name(path: str | Path) -> str:
    """Return the MD5 of the absolute path as it is written: neither ``..`` nor links are resolved."""
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
        sys.modules[name] = (
            module  # before it runs, as an import does: classes look their module up while they are made
        )
        spec.loader.exec_module(module)
        names.append(name)
    return names


__all__ = ["registerBuiltinFunctions", "summaries"]

#: Importing these registers what they define.
OWN = (blocks, schedulers, losses, hooks, tuners)


def registerBuiltinFunctions() -> None:
    """apex's LAMB where apex is installed, Étude's own where it is not; what a user registered stays."""
    with suppress(ImportError):
        from apex.optimizers import FusedLAMB  # type: ignore[import-not-found]

        OptimizerRegistry._map.setdefault("Lamb", FusedLAMB)
    for registry in (OptimizerRegistry, LrSchedulerRegistry):
        for name, target in REGISTERED[registry.__name__].items():
            if not registry.has(name):
                registry._map[name] = resolve(target)


def summaries() -> str:
    """Return every registry with its entries, as ``-D`` prints them."""
    return "\n".join(f"Summary of {registry}: \r\n{registry.summary()}" for registry in REGISTRIES)
