"""Finds what the installed project of a config registers, from its sources: nothing is imported. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from etude.dialects import ownership
from etude.dialects.openmm.checks.project_sources import registered

#: Packages whose classes the configs of a project name, too.
_USES = {"mmselfsup": ("mmcls",)}
_IN_PACKAGE = re.compile(r"[/\\](mmpretrain|mmselfsup)[/\\]\.mim[/\\]configs[/\\]")


def package_of(path: str) -> str:
    """Return the package whose installed configs ``path`` is one of; empty for others."""
    found = _IN_PACKAGE.search(path)
    return found[1] if found else ""


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
