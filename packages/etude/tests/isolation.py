"""Every test begins with the same process: what it imported from its folder and registered is taken back.

Tests are dealt out to processes as these become free, so a test never knows which ones ran before it. A guest has more
to take back: it adds its registries to :data:`TABLES`, and other things to :data:`UNDO`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from etude import registry
from tests.places import EXAMPLES

#: Functions that give the tables of registries.
TABLES: list[Callable[[], Iterator[dict[str, Any]]]] = [
    lambda: (native._entries for native in registry.TABLES.values())
]
#: Further things to undo after a test.
UNDO: list[Callable[[], AbstractContextManager[None]]] = []


@contextmanager
def isolated(folder: Path) -> Iterator[None]:
    """Afterwards the modules that lie in ``folder`` or belong to an example, and what was registered from them, are gone."""
    modules = set(sys.modules)
    entries = {id(table): dict(table) for table in _tables()}
    with ExitStack() as undo:
        for one in UNDO:
            undo.enter_context(one())
        yield
    passing = {name for name in set(sys.modules) - modules if _lies_in((folder, EXAMPLES), sys.modules[name])}
    for table in _tables():
        _restore(table, entries.get(id(table), {}), passing)
    for name in passing:
        del sys.modules[name]


def _tables() -> Iterator[dict[str, Any]]:
    for tables in TABLES:
        yield from tables()


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
