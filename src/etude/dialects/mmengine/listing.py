"""What an MMEngine config can name by ``type``, for ``etude list --dialect mmengine``. No torch."""

from __future__ import annotations

from etude.dialects.mmengine import names_engine, names_parts
from etude.inspection import signatures as scan
from etude.inspection.index import kept


def tables() -> dict[str, dict[str, str]]:
    """Registry → name → where it comes from and a line about it."""
    found: dict[str, dict[str, str]] = {}
    for piece in (names_engine, names_parts):
        for table, entries in piece.REGISTERED.items():
            found.setdefault(table, {}).update({name: _line(target) for name, target in entries.items()})
    return {table: dict(sorted(found[table].items())) for table in sorted(found)}


def _line(target: str) -> str:
    signature = scan.signature(target, known=kept)
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()
