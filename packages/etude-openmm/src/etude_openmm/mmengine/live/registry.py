"""Fills MMEngine's root registries with Étude's classes, each imported when it is first asked for."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from etude_openmm.mmengine import names
from etude_openmm.shared.registries.registry_v2 import Registry
from etude_openmm.shared.registries.root import ROOTS

for _name, _entries in names.REGISTERED.items():
    ROOTS[_name].add_lazy(_entries)


def __getattr__(name: str) -> Any:
    """Return a root registry (``registry.HOOKS``), or the registries of a project (``registry.mmselfsup.MODELS``)."""
    if name in ROOTS:
        return ROOTS[name]
    if name not in names.PROJECTS:
        raise AttributeError(name)
    return _project(name)


@cache
def _project(scope: str) -> SimpleNamespace:
    """Make the registries of a project: children of the root ones, with what the project registers.

    This adds the project's scope to the tree of registries, so it happens only when one of them is asked for.
    """
    roots = {name: root for name, root in ROOTS.items() if name not in ("FUNCTIONS", "INFERENCERS", "STRATEGIES")}
    made = {name: Registry(root.name, parent=root, scope=scope) for name, root in roots.items()}
    for name, entries in names.PROJECTS[scope].items():
        made[name].add_lazy(entries)
    return SimpleNamespace(**made)
