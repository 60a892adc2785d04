"""Finds what the installed project of a config registers, from its sources: nothing is imported. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.dialects.openmm.checks.project_sources import registered

#: Packages whose classes the configs of a project name, too.
_USES = {"mmselfsup": ("mmcls",)}


def registered_by(values: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return (table, name) → ``module:attr`` of what the project of ``default_scope`` registers, where it is there."""
    scope = values.get("default_scope")
    if not isinstance(scope, str):
        return {}
    found: dict[tuple[str, str], str] = {}
    for package in (*_USES.get(scope, ()), scope):
        found.update(registered(package))
    return found
