"""Reads config files, inheritance, overrides and references into a Tree, with the file and line of every value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from etude.config.tree import Path, Tree, copied, dotted

__all__ = ["Path", "Tree", "dotted", "read"]


def read(
    paths: str | Iterable[str],
    overrides: Iterable[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    may_be_new: Callable[[str], bool] | None = None,
) -> Tree:
    """Read config files, the later over the earlier, apply the overrides, then resolve choices and references.

    ``environment`` replaces ``os.environ``. ``may_be_new`` says whether an override may set a key that the
    config does not write without a ``+``.
    """
    from etude.config.choices import require_groups, resolve_choices, split_groups
    from etude.config.merge import finish, load, merge
    from etude.config.overrides import override
    from etude.config.references import resolve_references

    groups, rest = split_groups(overrides)
    tree = Tree({})
    for path in [paths] if isinstance(paths, str) else paths:
        tree = merge(tree, load(path, choices=groups))
    require_groups(groups, tree.groups)
    finish(tree)
    tree.values = copied(tree.values)
    override(tree, rest, may_be_new=may_be_new)
    resolve_choices(tree)
    resolve_references(tree, environment)
    return tree
