"""Finds what an installed project registers, from its sources: nothing is imported. No torch."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from etude.dialects import ownership
from etude.inspection import signatures as scan

#: Projects are called so: their packages are the ones that register parts for each other.
_OTHER_PROJECTS = r"(?m)^\s*(?:import|from)\s+(mm\w+)"
Keep = Callable[[str], bool]
#: The way in which nearly all classes of the projects are registered.
_PLAIN = r"(?m)^@(\w+)\.register_module\(\)\n(?:@.*\n)*(?:class|def) (\w+)"


def registered(package: str, keep: Keep | None = None) -> Mapping[tuple[str, str], str]:
    """Return what the sources of an original register: (table, name) → ``module:attr``.

    ``keep`` says which of its modules count: of mmcv, only those that Étude takes from the disk.
    """
    folder = ownership.original(package)
    return _registered(package, folder, keep) if folder is not None else {}


@cache
def texts_of(package: str) -> tuple[str, ...]:
    """Return the texts of all files of an original."""
    folder = ownership.original(package)
    return tuple(_text(file) for _, file in _files(package, folder)) if folder is not None else ()


@cache
def imported_by(package: str) -> tuple[str, ...]:
    """Return the top-level packages, other than mmcv and mmengine, whose name begins as theirs and that it imports."""
    found = {name for text in texts_of(package) for name in re.findall(_OTHER_PROJECTS, text)}
    return tuple(sorted(found - {"mmcv", "mmengine", package}))


def scoped(scope: str) -> dict[str, str]:
    """Return name → ``module:attr`` of what a config may write as ``scope.name``; empty for what is no project here."""
    return {name: target for (_, name), target in registered(scope).items()} if scope.isidentifier() else {}


@cache
def _registered(package: str, folder: str, keep: Keep | None) -> Mapping[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for module, file in _files(package, folder):
        text = _text(file) if keep is None or keep(module) else ""
        if "register_module" in text:
            plain = _plain(module, text)
            found.update(_parsed(module, file) if plain is None else plain)
    return found


def _plain(module: str, text: str) -> dict[tuple[str, str], str] | None:
    """Return what a file registers if all of it is written in the plain way; None where the file has to be parsed.

    Parsing every file took 4 s for a config of MMTracking, which uses three projects.
    """
    found = list(re.finditer(_PLAIN, text))
    if len(found) != text.count("register_module"):
        return None
    for one in found:
        before = text[: one.start()]
        is_quoted = before.count('"""') % 2 or before.count("'''") % 2
        if is_quoted or f" as {one[1]}" in before:
            return None
    return {(one[1], one[2]): f"{module}:{one[2]}" for one in found}


def _parsed(module: str, file: str) -> dict[tuple[str, str], str]:
    source = scan.parse(module, file)
    return {(entry.table, entry.name): entry.target for entry in scan.registered(source)} if source else {}


def _files(package: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield (module, file) of a package."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name.isidentifier())
        for name in sorted(names):
            if name.endswith(".py"):
                relative = os.path.relpath(os.path.join(root, name), folder)
                parts = [package, *relative.removesuffix(".py").split(os.sep)]
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), os.path.join(root, name)


def _text(file: str) -> str:
    with open(file, encoding="utf-8", errors="replace") as opened:
        return opened.read()
