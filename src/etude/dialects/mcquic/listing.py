"""Lists what a McQuic config can name by ``key``, for ``etude list --dialect mcquic``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.config.tree import Tree
from etude.dialects.mcquic.lower import registered
from etude.inspection import signatures as scan
from etude.inspection.index import kept


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Registry → key → where it comes from and a line about it, read off the sources; with ``tree`` also what its
    libraries register."""
    tree = tree or Tree({})
    folders = [str(Path(file).absolute().parent) for file in tree.files]
    return {
        registry: {key: _line(target, folders) for key, target in sorted(entries.items())}
        for registry, entries in registered(tree).items()
    }


def _line(target: str, folders: Sequence[str]) -> str:
    signature = scan.signature(target, folders=folders, known=kept)
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()
