"""Reads ``names.json`` of a dialect, which maps import names to Étude's modules. Imports no torch.

``modules`` maps a module of the original to its names, grouped by Étude's module::

    "original.config": {".shared.config": "Config ConfigDict DictAction", "+": "original.utils"}

A leading dot means the guest's own top-level package, ``Lamb=LAMB`` provides ``LAMB`` as ``Lamb``, ``now=time()`` calls
a function each time the name is asked for, and ``+`` adds all names of other modules. The group ``""`` holds whole
modules: ``comm=other.utils.comm``. ``imported`` lists names that a file of the original imports from its other files:
users import, and tests patch, them there, too. ``out_of_scope`` maps a reason to the names that are refused for it,
below the prefix before ``:``. ``registered`` is what the root registries hold: registry → names. ``from_disk`` lists
the modules (``""``) and names of modules that come from the original on disk, over Étude's engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.files import table_beside

#: Module of the original → name → ``module:attribute``, or a module.
Table = dict[str, dict[str, str]]


class NameTables:
    """The tables next to one dialect's ``names.py``, which :mod:`etude.dialects.imports` combines."""

    def __init__(self, file: str, module: str) -> None:
        """Read the tables for the ``__file__`` and ``__name__`` of a dialect's ``names.py``."""
        read: dict[str, Any] = table_beside(file, "names.json")
        top = module.partition(".")[0]
        self.modules = _expand_tables(read["modules"], top)
        self.registered = _expand_tables(read.get("registered", {}), top)
        homes = _by_package(self.modules)
        for module, names in read.get("imported", {}).items():
            home = homes[module.partition(".")[0]]
            self.modules[module] = {name: home[name] for name in names.split()} | self.modules.get(module, {})
        self.out_of_scope = dict(_refused_names(read.get("out_of_scope", {})))
        self.from_disk = {module: names.split() for module, names in read.get("from_disk", {}).items()}


def _by_package(modules: Table) -> Table:
    """Map package → name → its (first) place."""
    homes: Table = {}
    for module in reversed(modules):
        homes.setdefault(module.partition(".")[0], {}).update(modules[module])
    return homes


def _expand_tables(read: Mapping[str, Mapping[str, str]], top: str) -> Table:
    def names_of(module: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for home, names in read[module].items():
            for part in (
                map(names_of, names.split())
                if home == "+"
                else [_entries(top + home if home.startswith(".") else home, names)]
            ):
                found |= part
        return found

    return {module: names_of(module) for module in read}


def _entries(home: str, names: str) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in names.split()]
    return {name: f"{home}:{attribute or name}" if home else attribute for name, _, attribute in pairs}


def _refused_names(read: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    for reason, groups in read.items():
        for group in groups:
            prefix, _, names = group.rpartition(":")
            yield from ((f"{prefix}.{name}" if prefix else name, reason) for name in names.split())
