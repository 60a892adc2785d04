"""Checks the imports of pure-Python configs by reading sources; nothing is imported.

These imports are stand-ins until a value is read, so a misspelt one would show late.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping

from etude.config.files import display
from etude.config.imports import near_module
from etude.dialects import imports, ownership
from etude.errors import Finding
from etude.errors.spelling import nearest, suggest
from etude.fast_dataclass import record
from etude.inspection import signatures as scan
from etude_openmm.shared.reading.syntax import CONFIG_HOMES, is_builtin, statements, tree_of


@record
class Imported:
    """One name that a config imports: ``name`` of ``module`` (empty for the module itself), and where."""

    module: str
    name: str
    at: str


def imported_by(files: Mapping[str, str]) -> list[Imported]:
    """Return what the config files (path → text) import for use as types, bases left out."""
    return [entry for file, text in files.items() if file.endswith(".py") for entry in _imported(file, text)]


def broken_imports(files: Mapping[str, str]) -> list[Finding]:
    """Return a finding for every import that leads nowhere, each with its own line."""
    folders = tuple(dict.fromkeys(os.path.dirname(os.path.abspath(file)) for file in files))
    findings = [_broken(entry, folders) for entry in imported_by(files)]
    return list(dict.fromkeys(finding for finding in findings if finding is not None))


def missing_name(module: str, name: str, folders: tuple[str, ...]) -> tuple[str, str] | None:
    """Return what is wrong with ``name`` of ``module`` and a hint; None if the sources show no mistake."""
    served = imports.served_names(module)
    if served is not None:
        if not name or name in served or imports.served_names(f"{module}.{name}") is not None:
            return None
        reason = imports.reason_against(module, name)
        return (reason, "") if reason else (f"{module} has no {name!r}", suggest(name, served))
    source = scan.find_source(module, folders) or _source_on_disk(module)
    if source is None and imports.is_served(module.partition(".")[0]) and not scan.has_module(module, folders):
        reason = imports.reason_against(module)
        return (reason, "") if reason else (
            f"there is no module {module}", _did_you_mean(module, imports.served_modules())
        )  # fmt: skip
    if source is None:
        known = scan.has_module(module, folders)
        near = near_module(module, folders) or _did_you_mean(module, imports.served_modules())
        return None if known else (f"there is no module {module}", near)
    names = scan.names_in(source, folders)
    if not name or name in names or "__getattr__" in names or scan.has_module(f"{module}.{name}", folders):
        return None
    return f"{module} has no {name!r}", suggest(name, [word for word in names if not word.startswith("_")])


def _source_on_disk(module: str) -> scan.Source | None:
    """Return the source of a module that only the installed mmcv 2.x has: Étude serves ``mmcv`` with 1.x's names."""
    top = ownership.original("mmcv") if module.startswith("mmcv.") and ownership.generation("mmcv") >= 2 else None
    found = ownership.source_in(top, module) if top is not None else None
    return scan.parse(module, found[0]) if found is not None else None


def _did_you_mean(word: str, words: Iterable[str]) -> str:
    near = nearest(word, list(words))
    return f"did you mean {near!r}?" if near else ""


def _broken(entry: Imported, folders: tuple[str, ...]) -> Finding | None:
    wrong = missing_name(entry.module, entry.name, folders)
    return Finding(entry.at, *wrong) if wrong else None


def _imported(file: str, text: str) -> Iterator[Imported]:
    try:
        tree = tree_of(text)
    except SyntaxError:
        return
    shown = display(file)
    outside = [statement for statement in tree.body if not isinstance(statement, ast.With)]
    for node in statements(ast.Module(outside, tree.type_ignores)):
        at = f"{shown}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, "", at) for alias in node.names if not is_builtin(alias.name))
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module and not _is_own(node.module):
            yield from (Imported(node.module, alias.name, at) for alias in node.names if alias.name != "*")


def _is_own(module: str) -> bool:
    return is_builtin(module) or module in CONFIG_HOMES
