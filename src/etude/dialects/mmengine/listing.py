"""Lists what an MMEngine config can name by ``type``, for ``etude list --dialect mmengine``. No torch."""

from __future__ import annotations

from etude.config.tree import Tree
from etude.dialects.mmengine import projects
from etude.dialects.mmengine.lower import TABLES, WORDS
from etude.dialects.openmm.checks.schemas import Own


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Registry → name → where it comes from and a line about it; with ``tree`` also what its project and its modules
    register."""
    own = Own.of(tree, WORDS, projects.registered_by(projects.scope_of(tree.values, tree.files)) if tree else {})
    found = {table: {**TABLES.get(table, {}), **own.table(table)} for table in (*TABLES, *own.tables())}
    return {
        table: {name: _line(target, own) for name, target in sorted(found[table].items())} for table in sorted(found)
    }


def _line(target: str, own: Own) -> str:
    signature = own.signature(target)
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()
