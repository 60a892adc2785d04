"""Fills MMEngine's root registries with Étude's classes, each imported when it is first asked for."""

from __future__ import annotations

from typing import Any

from etude_openmm.mmengine import names
from etude_openmm.shared.registries.root import ROOTS

for _name, _entries in names.REGISTERED.items():
    ROOTS[_name].add_lazy(_entries)


def __getattr__(name: str) -> Any:
    """Return a root registry (``registry.HOOKS``)."""
    if name in ROOTS:
        return ROOTS[name]
    raise AttributeError(name)
