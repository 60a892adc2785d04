"""Finds targets and packages that do not exist, without importing anything."""

from __future__ import annotations

import os
import sys

from etude.config.files import display
from etude.config.tree import Tree, dotted
from etude.dialects import ownership
from etude.errors import Finding
from etude.errors.advice import install_hint
from etude.errors.spelling import is_slip, nearest
from etude.inspection import signatures
from etude_libai import names
from etude_libai.checks.calls import named_targets
from etude_libai.lazy.reading.errors import is_users, modules_in
from etude_libai.lazy.reading.sketches import FAMILY, absent_imports


def missing_targets(tree: Tree) -> list[Finding]:
    """Return a finding for every target whose module has no such name, or is misspelt."""
    found = []
    for way, target in named_targets(tree):
        module, _, attribute = target.rpartition(".")
        if lacking := _no_module(module):
            at = str(tree.place(*way, "_target_"))
            found.append(Finding(at, f"{dotted(way)}: there is no {target}", f"did you mean {lacking}.{attribute}?"))
            continue
        known = _names_in(module)
        if known is not None and attribute not in known and f"{module}.{attribute}" not in names.MODULES:
            near = nearest(attribute, known)
            hint = f"did you mean {module}.{near}?" if near else ""
            found.append(Finding(str(tree.place(*way, "_target_")), f"{dotted(way)}: there is no {target}", hint))
    return found


def missing_packages(tree: Tree) -> list[Finding]:
    """Warn about packages that the user's modules import and that are not installed."""
    found: dict[str, Finding] = {}
    for module in sorted({name.rpartition(".")[0] for _, name in named_targets(tree)}):
        source = signatures.find_source(module, tuple(sys.path)) if module.partition(".")[0] not in FAMILY else None
        if source is None or not is_users(source.file):
            continue
        for each in signatures.reached(module, source.file, folders=sys.path):
            for statement, package in absent_imports(each.body, os.path.dirname(each.file)):
                text = f"the package {package!r} is not installed, and training imports it"
                at = f"{display(each.file)}:{statement.lineno}"
                found.setdefault(package, Finding(at, text, install_hint(package), "warning"))
    return list(found.values())


def _no_module(name: str) -> str:
    """Return the name that a misspelt module was meant to have; empty if it may exist, or if nothing is similar."""
    if name in sys.modules or name in names.MODULES or signatures.has_module(name, tuple(sys.path)):
        return ""
    parts = name.split(".")
    for depth, part in enumerate(parts):
        above = ".".join(parts[:depth])
        known = modules_in(above)
        if ".".join(parts[: depth + 1]) in names.MODULES or part in known:
            continue
        meant = nearest(part, [word for word in known if len(word) > 2 and is_slip(part, word)])
        package = signatures.find_source(above, tuple(sys.path)) if above else None
        may_be = part[:1].isupper() or (package is not None and part in package.names)  # a class, or no module at all
        return "" if meant is None or may_be else ".".join([*parts[:depth], meant, *parts[depth + 1 :]])
    return ""


def _names_in(module: str) -> list[str] | None:
    """Return the names in a module of ours, one that is imported or one whose source can be read; None where nobody
    knows."""
    served = [name for name in names.MODULES.get(module, ()) if not name.startswith("_")]
    if module in names.MODULES and ownership.original(module.partition(".")[0]) is None:
        return None if module in names.OUT_OF_SCOPE else served or None
    loaded = sys.modules.get(module)
    if loaded is not None:
        return None if hasattr(loaded, "__getattr__") else [name for name in dir(loaded) if name[0] != "_"]
    source = signatures.find_source(module, tuple(sys.path))
    known = signatures.names_in(source, tuple(sys.path)) if source is not None else {"__getattr__"}
    return None if "__getattr__" in known else sorted({*known, *served})
