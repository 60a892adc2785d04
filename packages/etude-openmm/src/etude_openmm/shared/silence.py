"""Takes out of a config what writes outside of the work folder or sends something, for a replay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def name_of(spec: Any) -> str:
    """Return the class name of what a config describes."""
    kind = spec.get("type") if isinstance(spec, dict) else spec
    return str(kind if isinstance(kind, str) else getattr(kind, "__name__", "")).rpartition(".")[2]


def only(specs: Any, names: Iterable[str]) -> Any:
    """Return the entries of a list of these classes; anything else than a list as it is."""
    return [one for one in specs if name_of(one) in names] if isinstance(specs, list | tuple) else specs


def without(spec: Any, *keys: str) -> Any:
    """Return what a config describes without these arguments."""
    return {key: value for key, value in spec.items() if key not in keys} if isinstance(spec, dict) else spec
