"""Methods of user-defined hooks that are almost called like a point: nothing would ever call them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from etude.config.files import display
from etude.dialects.openmm.checks.lowering import Lowering
from etude.errors import is_slip, nearest
from etude.inspection import signatures as scan
from etude.plan import Place


def report_methods(low: Lowering, target: str, base: str, former: Mapping[str, str]) -> None:
    """Read the source of the hook ``target``; ``base`` has the points, ``former`` their names in other versions."""
    if target not in low.registered.values() and target.partition(":")[0] not in low.modules:
        return
    found = scan.class_of(target, folders=low.folders)
    if found is not None:
        source, node = found
        for method, meant in _misspelt(node, _points(base), former):
            text = f"{node.name}.{method.name}: a run calls no such method of a hook"
            low.warning(Place(display(source.file), method.lineno), text, f"did you mean {meant!r}?")


def _points(base: str) -> list[str]:
    found = scan.class_of(base)
    return [item.name for item in found[1].body if isinstance(item, ast.FunctionDef)] if found else []


def _misspelt(node: ast.ClassDef, points: list[str], former: Mapping[str, str]) -> list[tuple[ast.FunctionDef, str]]:
    """A method that the class calls itself is a part of it, whatever its name."""
    text, found = ast.unparse(node), []
    for method in [item for item in node.body if isinstance(item, ast.FunctionDef)]:
        called = re.search(rf"\.{method.name}\b", text) is not None
        if method.name in points or method.name.startswith("_") or called:
            continue
        near = [point for point in points if not point.startswith("_") and is_slip(method.name, point)]
        meant = nearest(method.name, near) or former.get(method.name)
        if meant:
            found.append((method, meant))
    return found
