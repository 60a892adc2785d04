"""Methods of the user's hooks that are almost called like a point: nothing would ever call them."""

from __future__ import annotations

import ast
import re

from etude import scan
from etude.config.files import display
from etude.dialects.mmengine.components import Components
from etude.errors import is_slip, nearest
from etude.plan import Place

_HOOK = "etude.dialects.mmengine.live.hooks.hook:Hook"
#: Points of mmcv 1.x that MMEngine calls otherwise.
_FORMER = {
    "before_epoch": "before_train_epoch", "after_epoch": "after_train_epoch", "before_iter": "before_train_iter",
    "after_iter": "after_train_iter",
}  # fmt: skip


def tell_hook_methods(components: Components) -> None:
    """Read the sources of the hooks that the config names."""
    low, points = components.low, _points()
    for path, name in low.tree.walk():
        if path[0] not in ("custom_hooks", "default_hooks") or path[-1] != "type":
            continue
        target = components.target(name, ("HOOKS",))
        if target not in low.registered.values() and target.partition(":")[0] not in low.modules:
            continue
        found = scan.class_of(target, folders=low.folders)
        if found is not None:
            source, node = found
            for method, meant in _misspelt(node, points):
                text = f"{node.name}.{method.name}: a run calls no such method of a hook"
                low.warning(Place(display(source.file), method.lineno), text, f"did you mean {meant!r}?")


def _points() -> list[str]:
    found = scan.class_of(_HOOK)
    return [item.name for item in found[1].body if isinstance(item, ast.FunctionDef)] if found else []


def _misspelt(node: ast.ClassDef, points: list[str]) -> list[tuple[ast.FunctionDef, str]]:
    """A method that the class calls itself is a part of it, whatever its name."""
    text, found = ast.unparse(node), []
    for method in [item for item in node.body if isinstance(item, ast.FunctionDef)]:
        called = re.search(rf"\.{method.name}\b", text) is not None
        if method.name in points or method.name.startswith("_") or called:
            continue
        near = [point for point in points if not point.startswith("_") and is_slip(method.name, point)]
        meant = nearest(method.name, near) or _FORMER.get(method.name)
        if meant:
            found.append((method, meant))
    return found
