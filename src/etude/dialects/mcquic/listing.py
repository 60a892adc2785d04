"""Lists what a McQuic config can name by ``key``, for ``etude list --dialect mcquic``."""

from __future__ import annotations

from etude.dialects.mcquic.lower import REGISTERED
from etude.inspection import signatures as scan
from etude.inspection.index import kept


def tables() -> dict[str, dict[str, str]]:
    """Registry → key → where it comes from and a line about it, read off the sources."""
    return {
        registry: {key: _line(target) for key, target in sorted(entries.items())}
        for registry, entries in REGISTERED.items()
    }


def _line(target: str) -> str:
    signature = scan.signature(target, known=kept)
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()
