"""Prints what modules of an original have and Étude's modules of that name have not: ``compare_names.py FOLDER PACKAGE``.

The original's sources are read, not imported. A name is a function, class or variable at the top of a file, a name that
it imports from its own package, or an attribute that the body of a class defines.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import etude.compat

_NO_ATTRIBUTES = ("__init__", "__repr__", "__slots__", "__doc__")


def missing(top: Path, package: str) -> Iterator[str]:
    """Yield ``module``, ``module:name`` or ``module:Class.attribute`` of everything that is missing."""
    for file in sorted(top.rglob("*.py")):
        parts = [package, *file.relative_to(top).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        try:
            module = importlib.import_module(name)
        except Exception:
            yield name
            continue
        for word, attributes in _names(ast.parse(file.read_text()).body, package):
            try:
                value = getattr(module, word)
            except Exception:
                yield f"{name}:{word}"
                continue
            yield from (f"{name}:{word}.{one}" for one in attributes if not hasattr(value, one))


def _names(body: list[ast.stmt], package: str) -> Iterator[tuple[str, list[str]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, []
        elif isinstance(node, ast.ClassDef):
            yield node.name, [name for name in _attributes(node) if name not in _NO_ATTRIBUTES]
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] == package):
            yield from ((alias.asname or alias.name, []) for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from ((name, []) for name in _assigned(node))
        elif isinstance(node, ast.If):
            yield from _names([*node.body, *node.orelse], package)
        elif isinstance(node, ast.Try):
            yield from _names([*node.body, *(one for handler in node.handlers for one in handler.body)], package)


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            yield item.name
        elif isinstance(item, ast.Assign) or (isinstance(item, ast.AnnAssign) and item.value is not None):
            yield from _assigned(item)


def _assigned(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    etude.compat.install()
    with contextlib.redirect_stdout(sys.stderr):  # what the imported modules print
        found = sorted(set(missing(Path(sys.argv[1]), sys.argv[2])))
    print(*found, sep="\n")
