"""Finds the ``imports`` of a config: modules, or files next to it, that register user-defined components.

Here they are only found, not imported, so that ``check`` can look into them without running them.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence

from etude.errors import Finding
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.plan import Place


@record
class Import:
    """One entry: as written, the name it is imported as, and its file (None for a compiled one)."""

    written: str
    module: str
    file: str | None
    at: Place


def find_imports(
    entries: Iterable[str], files: Sequence[str], places: Sequence[Place] = ()
) -> tuple[list[Import], list[Finding]]:
    """Return every entry of ``imports`` with its file, and a finding for each entry without one.

    ``files`` are those the config was read from: an import is looked for next to them, and in the folders that entries
    before it name (``../parts/``).
    """
    found: list[Import] = []
    findings: list[Finding] = []
    folders = list(dict.fromkeys(os.path.dirname(os.path.abspath(file)) for file in files)) or [os.getcwd()]
    for index, entry in enumerate(entries):
        place = places[index] if index < len(places) else Place(files[0] if files else "")
        if is_folder(entry):
            there = [path for folder in folders if os.path.isdir(path := os.path.abspath(os.path.join(folder, entry)))]
            folders += there[:1]
            findings += [] if there else [Finding(str(place), f"imports: there is no folder {entry}")]
            continue
        located = next(filter(None, (locate(entry, place, folder) for folder in folders)), None)
        if located is None:
            hint = near_module(entry, folders)
            findings.append(Finding(str(place), f"imports: no module or file {entry!r} can be found", hint))
        else:
            found.append(located)
            findings += _broken(located.file, entry)
    return found, findings


def is_folder(entry: str) -> bool:
    """Return whether an entry is a folder to search for those after it, and not a module."""
    return entry.endswith("/")


def _broken(file: str | None, entry: str) -> list[Finding]:
    """Report a user's file that Python cannot parse, with its line."""
    if file is None or not entry.endswith(".py"):
        return []
    try:
        with open(file, encoding="utf-8") as source:
            ast.parse(source.read(), file)
    except SyntaxError as error:
        return [Finding(f"{entry}:{error.lineno or 1}", f"imports: {entry} cannot be read: {error.msg}")]
    except (OSError, ValueError) as error:
        return [Finding(entry, f"imports: {entry} cannot be read: {error}")]
    return []


def locate(entry: str, place: Place, folder: str) -> Import | None:
    """Find an import: a file (``nets.py``) or module in the config's folder, or a module on ``sys.path``."""
    found = locate_beside(entry, place, folder)
    return found if found is not None or entry.endswith(".py") else _installed(entry, place)


def locate_beside(entry: str, place: Place, folder: str) -> Import | None:
    """Find an import in ``folder`` or in the current one."""
    if entry.endswith(".py"):
        path = os.path.abspath(os.path.join(folder, os.path.expanduser(entry)))
        name = os.path.splitext(os.path.basename(path))[0]
        return Import(entry, name, path, place) if os.path.isfile(path) else None
    relative = entry.replace(".", os.sep)
    for base in (folder, os.getcwd()):
        for candidate in (f"{relative}.py", os.path.join(relative, "__init__.py")):
            if os.path.isfile(path := os.path.join(base, candidate)):
                return Import(entry, entry, path, place)
    return None


def _installed(entry: str, place: Place) -> Import | None:
    """Find a module on ``sys.path`` without importing its parents, as ``find_spec`` does for a dotted name."""
    top, *rest = entry.split(".")
    if top in sys.builtin_module_names and not rest:
        return Import(entry, entry, None, place)
    try:
        spec = importlib.util.find_spec(top)
        if spec is None or (spec.origin is None and not spec.submodule_search_locations):
            # A guest may serve the name, and leave modules below it to the original on disk.
            spec = importlib.machinery.PathFinder.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Import(entry, entry, spec.origin, place)
    for folder in spec.submodule_search_locations or ():
        for candidate in (os.path.join(*rest) + ".py", os.path.join(*rest, "__init__.py")):
            if os.path.isfile(path := os.path.join(folder, candidate)):
                return Import(entry, entry, path, place)
    return None


def near_module(entry: str, folders: Sequence[str]) -> str:
    """Return a hint for an entry that is not found: the file in the config's folder that was probably meant."""
    if os.sep in entry and not entry.endswith(".py"):
        return f"a file is written with its ending: {entry}.py"
    module = entry.removesuffix(".py")
    if "." in module and module != entry and any(locate(module, Place(""), folder) for folder in folders):
        return f"that names a module with a file's ending: did you mean {module!r}?"
    files = [name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder) if name.endswith(".py")]
    names = files if entry.endswith(".py") else [name.removesuffix(".py") for name in files]
    return suggest(entry, names, otherwise="")
