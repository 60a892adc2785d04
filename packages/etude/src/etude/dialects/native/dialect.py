"""Étude's own config language, as a dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etude.dialects.base import Dialect
from etude.errors import Finding, UserError

if TYPE_CHECKING:
    from etude.config.tree import Tree
    from etude.dialects.draft import Draft
    from etude.plan import Plan


class Native(Dialect):
    """What is left when no other dialect claims a file."""

    name = "native"
    title = "Étude"
    asked = 100

    def recognise(self, path: str, text: str) -> bool:
        return True

    def read(self, path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any]) -> Tree:
        from etude.dialects.native.lower import read

        return read(path, overrides, options=options)

    def lower(self, tree: Tree) -> Plan:
        from etude.dialects.native.lower import lower

        return lower(tree)

    def with_flags(self, tree: Tree, flags: Mapping[str, Any]) -> tuple[Tree, dict[str, Any]]:
        from etude.dialects.native.lower import with_flags

        return with_flags(tree, flags)

    def check(self, tree: Tree) -> list[Finding]:
        """Return the findings about keys and, as these leave enough of a plan, about components."""
        from etude.dialects.native.lower import survey

        plan, findings = survey(tree)
        return [*findings, *self.bind_arguments(plan)[1]]

    def keep_apart(self, tree: Tree) -> list[str]:
        return ["~checkpoint.folder"] if tree.get("checkpoint", "folder") else []

    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        from etude.dialects.native.schema import schema
        from etude.inspection.index import index_of

        return schema(index_of(tree))

    def reference(self, tree: Tree | None = None) -> str:
        from etude.dialects.native.schema import markdown
        from etude.inspection.index import index_of

        return markdown(index_of(tree))

    def convert(self, tree: Tree) -> Draft:
        raise UserError("this config is a native one already")
