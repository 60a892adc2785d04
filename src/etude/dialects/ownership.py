"""Decides what an import name means: Étude's module, an installed original, or a folder of the user.

The rule, for ``etude train``, ``etude exec`` and ``etude.compat.install()``:

1. Étude owns the engine modules of each family (``ENGINE`` in a dialect's ``names.py``), whether or not the original is
   installed. ``mmengine`` is owned as a whole; of ``mmcv`` the layers, images and ops come from the mmcv on disk.
2. A folder on ``sys.path`` is an original if it carries the original's marks. Wheels, checkouts and editable installs
   all have them, and looking is cheaper than asking for the metadata of distributions.
3. An original is never taken for a folder of the user; a folder without the marks always is one.
4. Of all other packages (``mmcls``, ``mmdet``, ``libai`` …) the original wins over Étude's stand-ins.
5. ``mmcv`` is mmcv 2.x for code of MMEngine's world, and mmcv 1.x for all other code. See :func:`wants_mmcv2`.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType

#: Package → files that distinguish the original from a user folder of the same name.
MARKS: dict[str, tuple[str, ...]] = {
    "mmcv": ("__init__.py", "version.py"),
    "mmengine": ("version.py", "runner/runner.py"),
    "mmcls": ("__init__.py", "version.py"),
    "mmdet": ("__init__.py", "version.py"),
    "mmtrack": ("__init__.py", "version.py"),
    "mmselfsup": ("__init__.py", "version.py"),
    "mmpretrain": ("__init__.py", "version.py"),
    "detectron2": ("__init__.py", "modeling/meta_arch/build.py"),
    "libai": ("__init__.py", "models/vision_transformer.py"),
    "mcquic": ("__init__.py", "modules/compressor.py"),
}
_ANY_PACKAGE = ("__init__.py",)
_VERSION = r"""(?m)^__version__\s*=\s*['"]([^'"]+)['"]"""
_PROJECTS = r"(?m)^\s*(?:from|import)\s+(mm(?:cls|det|track|selfsup|pretrain))\b"
_NEW_WORLD = r"(?m)^\s*(?:from|import)\s[^#\n]*\b(?:mmengine|mmcv\.transforms)\b"


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
    here = os.getcwd()
    checked_out = any(is_original(os.path.join(here, package), package) for package in MARKS)
    if checked_out and here not in _entries():
        sys.path.insert(0, here)


def is_original(folder: str, package: str) -> bool:
    """Return whether ``folder`` has the files of the original ``package``."""
    return all(os.path.isfile(os.path.join(folder, mark)) for mark in MARKS.get(package, _ANY_PACKAGE))


def version(package: str) -> str:
    """Return the version in the original's own files; empty if there is none."""
    folder = original(package)
    for name in ("version.py", "__init__.py") if folder else ():
        text = _text(os.path.join(folder or "", name))
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
    beside = user_folders(parent) if parent else list(_entries())
    return bool(user_folders(name)) or any(os.path.isfile(os.path.join(folder, f"{last}.py")) for folder in beside)


def wants_mmcv2() -> bool:
    """Return whether the code that imports ``mmcv`` now expects mmcv 2.x.

    It does when ``mmengine`` has been imported, or when the file with the import statement imports it, too, or a
    project that is written for it.
    """
    if "mmengine" in sys.modules:
        return True
    text = _text(_importer())
    return bool(re.search(_NEW_WORLD, text)) or any(map(is_of_mmengine, set(re.findall(_PROJECTS, text))))


def is_of_mmengine(package: str) -> bool:
    """Return whether the installed project is written for MMEngine, as mmcls 1.x and mmdet 3.x are."""
    return generation(package) >= {"mmdet": 3}.get(package, 1)


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


def _importer() -> str:
    """Return the file whose import statement is being run."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        name = frame.f_globals.get("__name__", "")
        if not file.startswith("<frozen") and not str(name).startswith(("etude.", "importlib.")):
            return file
        frame = frame.f_back
    return ""


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except OSError:
        return ""
