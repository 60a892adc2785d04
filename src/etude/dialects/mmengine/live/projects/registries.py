"""The registries of MMSelfSup and MMPretrain: children of MMEngine's, with the package's name as their scope."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

from etude.dialects.mmengine import names
from etude.dialects.mmengine.live.registry import children


def __getattr__(name: str) -> SimpleNamespace:
    if name not in names.PROJECTS:
        raise AttributeError(name)
    return _project(name)


@cache
def _project(scope: str) -> SimpleNamespace:
    """Make the registries of a project when one of them is asked for first: this adds its scope to the tree."""
    return SimpleNamespace(**children(scope))
