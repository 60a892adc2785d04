"""The syntax of config files. Many look at each text: it is parsed once, and nobody may change its tree."""

from __future__ import annotations

import ast
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache

BASE = "_base_"
#: Modules that a config may import its own tools from, and where these are.
CONFIG_HOMES = {
    "mmengine.config": "etude_openmm.shared.config.config_v2",
    "mmengine": "etude_openmm.shared.config.config_v2",
    "mmcv.utils.config": "etude_openmm.shared.config.config_v1",
    "mmcv.utils": "etude_openmm.shared.config.config_v1",
    "mmcv": "etude_openmm.shared.config.config_v1",
}
#: Where a statement keeps others.
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def fresh_tree(text: str) -> ast.Module:
    """Return the syntax tree of a config, to change. ``from mmengine.config import read_base`` in it means Étude's,
    whether the old names are served or not."""
    tree = ast.parse(text)
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
            names = {alias.name for alias in node.names}
            for home, ours in CONFIG_HOMES.items():
                if node.module == home and (home.endswith("config") or names <= {"Config", "ConfigDict", "read_base"}):
                    node.module = ours
    return tree


@lru_cache(maxsize=64)
def tree_of(text: str) -> ast.Module:
    """Return the syntax tree that all share."""
    return fresh_tree(text)


def filled_tree(text: str) -> ast.Module | None:
    """Return the syntax tree of a text whose ``{{…}}`` are not filled in yet; None if it has mistakes."""
    try:
        return tree_of(re.sub(r"\{\{.*?\}\}", "0", text) if "{{" in text else text)
    except SyntaxError:
        return None


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements, outer ones first."""
    waiting: deque[ast.AST] = deque(tree.body)
    while waiting:
        statement = waiting.popleft()
        yield statement
        for block in _BLOCKS:
            waiting.extend(getattr(statement, block, ()))


def is_builtin(module: str) -> bool:
    """Return whether a config may really import this module: the standard library and the config module itself."""
    return module in CONFIG_HOMES.values() or module.split(".")[0] in sys.stdlib_module_names


def assigns_base(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == BASE for target in statement.targets
    )


def names_used(texts: Iterable[str]) -> set[str]:
    """Return the variables that a config reads itself: in its own code, as ``_base_.x``, or as ``{{_base_.x}}``."""
    return set().union(*map(_names_used, texts))


@lru_cache(maxsize=64)
def _names_used(text: str) -> set[str]:
    tree = filled_tree(text)
    nodes = ast.walk(tree) if tree is not None else ()
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return names.union(re.findall(r"_base_\.(\w+)", text)) if "_base_." in text else names
