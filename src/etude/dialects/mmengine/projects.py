"""Finds what the installed project of a config registers, from its sources: nothing is imported. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etude.dialects import ownership
from etude.dialects.mmengine.known_keys import package_of
from etude.dialects.openmm.checks.project_sources import registered

#: Packages whose classes the configs of a project name, too.
_USES = {"mmselfsup": ("mmcls",)}


def scope_of(values: Mapping[str, Any], files: Iterable[str]) -> str:
    """Return the scope that the names of a config are looked up in."""
    scope = values.get("default_scope")
    return scope if isinstance(scope, str) else next(filter(None, map(package_of, files)), "")


def registered_by(scope: str) -> dict[tuple[str, str], str]:
    """Return (table, name) → ``module:attr`` of what the installed project of a scope, and mmcv 2.x, register."""
    if not scope or ownership.original(scope) is None:
        return {}
    beside = ("mmcv",) if ownership.generation("mmcv") >= 2 else ()
    found: dict[tuple[str, str], str] = {}
    for package in (*beside, *_USES.get(scope, ()), scope):
        found.update(registered(package))
    return found
