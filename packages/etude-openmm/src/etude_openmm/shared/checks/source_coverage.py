"""Decides whether the sources show everything that is registered when a config runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from etude.dialects import imports
from etude.inspection import signatures as scan
from etude_openmm.shared.checks.lowering import INSTALLED, Lowering

_IMPORTING = ("import_module", "__import__", "iter_modules", "walk_packages")


def reads_all(low: Lowering) -> bool:
    """Return whether the sources of all imported modules can be read, and show everything that they register."""
    sources = list(low.sources())
    tops = {source.module.partition(".")[0] for source in sources} | {source.module for source in sources}
    foreign = {top for source in sources for top in _imported_tops(source)} - INSTALLED - tops
    return (
        len({source.module for source in sources} & set(low.modules)) == len(set(low.modules))
        and not any(
            scan.registers_unreadably(source.module, source.file) or _imports_late(source) for source in sources
        )
        and all(imports.is_served(top) for top in foreign)
    )


def _imports_late(source: scan.Source) -> bool:
    """Return whether a file imports by a function, which may bring in modules that its top does not show."""
    top = {id(statement) for statement in scan.statements(source.body)}
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top and not _is_known(node):
            return True
        if (isinstance(node, ast.Name) and node.id in _IMPORTING) or (
            isinstance(node, ast.Attribute) and node.attr in _IMPORTING
        ):
            return True
    return False


def _is_known(node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether an import brings in nothing that registers parts: the standard library, torch, what is served."""
    tops = list(_tops(node))
    return bool(tops) and all(top in INSTALLED or imports.is_served(top) for top in tops)


def _imported_tops(source: scan.Source) -> Iterator[str]:
    for statement in scan.statements(source.body):
        yield from _tops(statement)


def _tops(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom) and not statement.level:
        yield (statement.module or "").partition(".")[0]
