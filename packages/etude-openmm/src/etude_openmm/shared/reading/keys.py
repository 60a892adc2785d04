"""The keys that stand in a config and its bases, found without running or importing anything."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence

from etude_openmm.shared.reading.syntax import assigns_base, filled_tree, statements


def texts_of(path: str, text: str, depth: int = 6) -> list[str]:
    """Return the text of a config and of the bases that can be found without running anything."""
    texts = [text]
    for base in _bases(path, text) if depth else ():
        file = os.path.join(os.path.dirname(os.path.abspath(path)), base)
        if os.path.isfile(file):
            with open(file, encoding="utf-8", errors="replace") as stream:
                texts.extend(texts_of(file, stream.read(), depth - 1))
    return texts


def keys_in(texts: Sequence[str]) -> set[str]:
    """Return the top-level keys that are written in the texts, whatever their format."""
    pattern = re.compile(r"^[ \t]?[\"']?(\w+)[\"']?[ \t]*[=:](?!=)|^\{?\s*\"(\w+)\"\s*:", re.MULTILINE)
    return {name for text in texts for pair in pattern.findall(text) for name in pair if name}


def _bases(path: str, text: str) -> list[str]:
    if not path.endswith(".py"):
        found = re.findall(r"_base_[\"']?\s*:\s*(.+)", text)
        return re.findall(r"[\w./\\-]+\.(?:py|json|ya?ml)", found[0]) if found else []
    tree = filled_tree(text)
    bases: list[str] = []
    for node in statements(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and assigns_base(node):
            names = [item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant)]
            bases += [name for name in names if isinstance(name, str)]
        elif isinstance(node, ast.ImportFrom) and node.level and node.module:
            bases.append(os.path.join(*[".."] * (node.level - 1), *node.module.split(".")) + ".py")
    return bases
