"""Imports the Python files of ``externalLib``, and registers the optimizers and schedulers that come with McQuic."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from etude.registry import resolve
from etude_mcquic.live import hooks, schedulers, tuners
from etude_mcquic.live.model import losses
from etude_mcquic.live.registry import REGISTRIES, LrSchedulerRegistry, OptimizerRegistry
from etude_mcquic.names import REGISTERED

_log = logging.getLogger("mcquic")


def module_name(path: str | Path) -> str:
    """Return the module name of a file: the MD5 of its absolute path, with ``..`` and links unresolved."""
    return hashlib.md5(str(Path(path).absolute()).encode(), usedforsecurity=False).hexdigest()


def import_external(paths: Iterable[str]) -> list[str]:
    """Import every file in order and return the module names. Files that are not Python are skipped with a warning."""
    names = []
    for path in paths:
        name = module_name(path)
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            _log.warning("externalLib: %s is not a Python file and was left out", path)
            continue
        module = importlib.util.module_from_spec(spec)
        # Before it runs, as an import does: dataclasses, for example, look up their module while they are made.
        sys.modules[name] = module
        spec.loader.exec_module(module)
        names.append(name)
    return names


__all__ = ["registerBuiltinFunctions", "summaries"]

#: Modules that register their classes when they are imported.
OWN = (schedulers, losses, hooks, tuners)


def registerBuiltinFunctions() -> None:
    """Register optimizers and schedulers: apex's LAMB if it is installed, else Étude's. Users' entries stay."""
    with suppress(ImportError):
        from apex.optimizers import FusedLAMB  # type: ignore[import-not-found]

        OptimizerRegistry._map.setdefault("Lamb", FusedLAMB)
    for registry in (OptimizerRegistry, LrSchedulerRegistry):
        for name, target in REGISTERED[registry.__name__].items():
            if not registry.has(name):
                registry._map[name] = resolve(target)


def summaries() -> str:
    """Return a text with the entries of every registry, as ``-D`` prints it."""
    return "\n".join(f"Summary of {registry}: \r\n{registry.summary()}" for registry in REGISTRIES)
