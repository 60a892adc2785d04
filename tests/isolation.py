"""Every test begins with the same process: what it imported from its folder, registered and logged is taken back.

Tests are dealt out to processes as these become free, so a test never knows which ones ran before it.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etude import registry
from etude.dialects.libai.live.detectron.config import Registry as FvcoreRegistry
from etude.dialects.mcquic.live.registry import Registry as McquicRegistry
from etude.dialects.openmm import logging as openmm_logging
from etude.dialects.openmm.checks import lowering
from etude.dialects.openmm.registries.registry_base import EVERY, registered_by_hand

_EXAMPLES = Path(__file__).parents[1] / "examples"
_made: weakref.WeakSet[FvcoreRegistry] = weakref.WeakSet()


def watch() -> None:
    """Know every registry of fvcore that is made from now on; and let no config know what modules of tests register."""
    make = FvcoreRegistry.__init__
    lowering.registered_by_hand = lambda: {
        key: target for key, target in registered_by_hand().items() if not target.startswith("tests.")
    }

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _made.add(self)

    FvcoreRegistry.__init__ = noted  # type: ignore[method-assign]


@contextmanager
def isolated(folder: Path) -> Iterator[None]:
    """Afterwards the modules that lie in ``folder`` or belong to an example, what was registered from them, and loggers
    of mmcv are gone."""
    modules, loggers = set(sys.modules), dict(openmm_logging.logger_initialized)
    entries = {id(table): dict(table) for table in _tables()}
    yield
    passing = {name for name in set(sys.modules) - modules if _lies_in((folder, _EXAMPLES), sys.modules[name])}
    for table in _tables():
        _restore(table, entries.get(id(table), {}), passing)
    for name in passing:
        del sys.modules[name]
    for name in set(openmm_logging.logger_initialized) - set(loggers):
        _silence(logging.getLogger(name))
        del openmm_logging.logger_initialized[name]


def _tables() -> Iterator[dict[str, Any]]:
    for native in registry.TABLES.values():
        yield native._entries
    for tree in list(EVERY):
        yield tree._module_dict
    for made in list(_made):
        yield made._obj_map
    for kind in McquicRegistry.__subclasses__():
        yield kind._map


def _restore(table: dict[str, Any], before: dict[str, Any], passing: set[str]) -> None:
    for name, entry in list(table.items()):
        known = before.get(name)
        if _is_passing(entry, passing):
            if known is None:
                del table[name]
            else:
                table[name] = known


def _is_passing(entry: Any, passing: set[str]) -> bool:
    """Is it of a file that the test wrote or has forgotten, or made within the test itself?"""
    module, name = getattr(entry, "__module__", ""), getattr(entry, "__qualname__", "")
    gone = module in passing or (bool(module) and module not in sys.modules)
    return gone or (module.startswith("tests.") and "<locals>" in name)


def _lies_in(folders: tuple[Path, ...], module: Any) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(tuple(f"{folder}/" for folder in folders))


def _silence(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
