"""Decides what an import name means: Étude's module, an installed original, or a folder of the user.

The rule, for ``etude train``, ``etude exec`` and ``etude.compat.install()``:

1. Étude owns the engine modules of each family (``ENGINE`` in a dialect's ``names.py``), whether or not the original is
   installed. The other modules of a package come from the original on disk.
2. A folder on ``sys.path`` is an original if it carries the original's marks (``MARKS``, in the same file). Wheels,
   checkouts and editable installs all have them, and looking is cheaper than asking for the metadata of distributions.
3. An original is never taken for a folder of the user; a folder without the marks always is one.
4. Of all other packages the original wins over Étude's stand-ins.
5. Where two generations of a package have one name, the dialect says which one is meant (``gives_way`` of its overlay).
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType

from etude.config import no_code
from etude.errors.own_code import is_own
from etude.inspection.entry_points import entry_points

#: The entry point group that maps the import names of other systems to the ``names`` modules of dialects.
IMPORTS = "etude.imports"

_ANY_PACKAGE = ("__init__.py",)
_VERSION = r"""(?m)^__version__\s*=\s*['"]([^'"]+)['"]"""


def original(package: str) -> str | None:
    """Return the folder of the original ``package``, or None."""
    for folder in _folders(package):
        if is_original(folder, package):
            return folder
    return _editable(package)


def enter_checkout() -> None:
    """Put the current folder first on ``sys.path`` if a project is checked out there, so that it wins over a wheel.

    ``python -m etude``, ``etude exec`` and the projects' ``tools/dist_train.sh`` have it there, the command ``etude``
    starts without it.
    """
    if no_code.is_forbidden():
        return
    here = os.getcwd()
    there = [package for package in entry_points(IMPORTS) if os.path.isdir(os.path.join(here, package))]
    checked_out = any(has_marks(package) and is_original(os.path.join(here, package), package) for package in there)
    if checked_out and here not in _entries():
        sys.path.insert(0, here)


def has_marks(package: str) -> bool:
    """Return whether a dialect knows the original ``package``, and the files by which to tell it."""
    return package in _marks(package)


def is_original(folder: str, package: str) -> bool:
    """Return whether ``folder`` has the files of the original ``package``."""
    return all(os.path.isfile(os.path.join(folder, mark)) for mark in _marks(package).get(package, _ANY_PACKAGE))


def version(package: str) -> str:
    """Return the version in the original's own files; empty if there is none."""
    folder = original(package)
    for name in ("version.py", "__init__.py") if folder else ():
        text = text_of(os.path.join(folder or "", name))
        found = re.search(_VERSION, text)
        if found:
            return found[1]
    return ""


def generation(package: str) -> int:
    """Return the major version of the original; 0 if there is no original."""
    head = version(package).partition(".")[0]
    return int(head) if head.isdecimal() else 0


def user_folders(name: str) -> list[str]:
    """Return the user's folders on ``sys.path`` that are the module ``name``."""
    return [folder for folder in _folders(name) if not _inside_original(folder, name)]


def original_folders(name: str) -> list[str]:
    """Return the folders of originals that are the module ``name``."""
    found = [folder for folder in _folders(name) if _inside_original(folder, name)]
    package, _, rest = name.partition(".")
    top = original(package) if not found else None
    folder = os.path.join(top, *filter(None, rest.split("."))) if top else ""
    return found or [folder] if os.path.isdir(folder) or found else []


def source_in(top: str, module: str) -> tuple[str, list[str] | None] | None:
    """Return the file of ``module`` in the folder ``top`` of its package, and its own folder if it is a package."""
    base = os.path.join(top, *module.split(".")[1:])
    places = ((os.path.join(base, "__init__.py"), [base]), (f"{base}.py", None))
    return next((place for place in places if os.path.isfile(place[0])), None)


def is_users(name: str) -> bool:
    """Return whether the user has a module of this name on ``sys.path``, as a folder or as a file."""
    parent, _, last = name.rpartition(".")
    folders = user_folders(parent) if parent else list(_entries())
    return bool(user_folders(name)) or any(os.path.isfile(os.path.join(folder, f"{last}.py")) for folder in folders)


def _marks(package: str) -> Mapping[str, Sequence[str]]:
    module = entry_points(IMPORTS).get(package)
    marks: Mapping[str, Sequence[str]] = getattr(importlib.import_module(module), "MARKS", {}) if module else {}
    return marks


def _entries() -> Iterator[str]:
    for entry in list(sys.path):
        yield entry or os.getcwd()


def _folders(name: str) -> Iterator[str]:
    parts = name.split(".")
    for entry in _entries():
        folder = os.path.join(entry, *parts)
        if os.path.isdir(folder):
            yield folder


def _inside_original(folder: str, name: str) -> bool:
    package, _, rest = name.partition(".")
    top = os.path.normpath(os.path.join(folder, *[os.pardir] * len(rest.split(".") if rest else ())))
    return is_original(top, package)


def _editable(package: str) -> str | None:
    """Return the folder of an editable install for which setuptools adds a finder instead of a ``sys.path`` entry."""
    for finder in sys.meta_path:
        if getattr(finder, "__module__", "").startswith("__editable__") and hasattr(finder, "find_spec"):
            spec: importlib.machinery.ModuleSpec | None = finder.find_spec(package, None)
            folders: Iterable[str] = (spec.submodule_search_locations or ()) if spec is not None else ()
            found = next((folder for folder in folders if is_original(folder, package)), None)
            if found:
                return found
    return None


def importer() -> str:
    """Return the file whose import statement is being run."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        name = frame.f_globals.get("__name__", "")
        if not file.startswith("<frozen") and not (is_own(str(name)) or str(name).startswith("importlib.")):
            return file
        frame = frame.f_back
    return ""


def text_of(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except OSError:
        return ""
