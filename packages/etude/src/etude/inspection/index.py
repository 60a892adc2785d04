"""Resolves the names of a native config: the registries, and what its ``imports`` would add to them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from etude.config.imports import Import, find_imports
from etude.config.tree import Tree
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude.inspection.signatures import Registered, Signature
from etude.registry import TABLES, Registry


@record
class Entry:
    """A registered component: its origin, and its parameters (None if unknown)."""

    kind: str
    name: str
    origin: str
    signature: Signature | None


class Index:
    """Resolves a config's names: in the registries, and in what its ``imports`` would add to them."""

    def __init__(self, imports: Sequence[Import] = (), folders: Sequence[str] = ()) -> None:
        self.folders = tuple(folders)
        self.added = _added_by(imports, self.folders)
        self.imported = {entry.module for entry in imports}
        self._signatures: dict[str, Signature | None] = {}

    def origin(self, table: Registry, name: str) -> str:
        """Return ``module:attr`` of what ``name`` would build; empty if nothing has that name."""
        registered = self.added.get(table.kind, {}).get(name)
        if registered is not None:
            return registered.target
        return table.origin(name)

    def names(self, table: Registry) -> list[str]:
        return sorted({*table.names(), *self.added.get(table.kind, ())})

    def signature(self, origin: str) -> Signature | None:
        """Return what ``module:attr`` takes; None where its source does not show it."""
        if origin not in self._signatures:
            self._signatures[origin] = scan.signature(origin, folders=self.folders, known=cached)
        return self._signatures[origin]

    def entries(self, table: Registry) -> list[Entry]:
        """Return every component of a table, sorted by name."""
        found = []
        for name in self.names(table):
            origin = self.origin(table, name)
            found.append(Entry(table.kind, name, origin, self.signature(origin)))
        return found

    def dotted(self, path: str) -> str:
        """Return ``my_pkg.nets:Tiny`` for ``my_pkg.nets.Tiny``, whether or not that exists."""
        module, _, attribute = path.rpartition(".")
        return f"{module}:{attribute}"


def index_of(tree: Tree | None) -> Index:
    """Return what a native config can name, with what the imports of ``tree`` add."""
    if tree is None:
        return Index()
    listed = tree.get("imports", default=[])
    imports, _ = find_imports([listed] if isinstance(listed, str) else listed or [], list(tree.files))
    return Index(imports, [os.path.dirname(file) for file in tree.files])


def table_of(kind: str) -> Registry | None:
    """Return the registry of a spec's kind: ``hook``, or ``hooks`` as ``etude list`` calls it."""
    return next((table for word, table in TABLES.items() if kind in (word, table.kind)), None)


def tables_asked(word: str | None) -> dict[str, Registry]:
    """Return the tables that ``etude list WORD`` means; all of them without a word."""
    found = {name: table for name, table in TABLES.items() if word in (None, name, table.kind)}
    if word is not None and not found:
        hint = suggest(word, TABLES, otherwise=f"there are {', '.join(TABLES)}")
        raise ConfigError(f"there are no components of the kind {word!r}", hint=hint)
    return found


def _added_by(imports: Sequence[Import], folders: Sequence[str]) -> dict[str, dict[str, Registered]]:
    """Map registry kind → name → what the imports would register there."""
    kinds = {word.upper(): table.kind for word, table in TABLES.items()}
    added: dict[str, dict[str, Registered]] = {}
    for entry in imports:
        if entry.file is None or not entry.file.endswith(".py"):
            continue
        for registered in scan.registrations(entry.module, entry.file, folders=folders):
            kind = kinds.get(registered.table)
            if kind is not None:
                added.setdefault(kind, {})[registered.name] = registered
    return added
