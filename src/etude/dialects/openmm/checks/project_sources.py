"""Finds what an installed project registers, from its sources: nothing is imported. No torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from etude.dialects import ownership
from etude.inspection import signatures as scan

Keep = Callable[[str], bool]


def registered(package: str, keep: Keep | None = None) -> Mapping[tuple[str, str], str]:
    """Return what the sources of an original register: (table, name) → ``module:attr``.

    ``keep`` says which of its modules count: of mmcv, only those that Étude takes from the disk.
    """
    folder = ownership.original(package)
    return _registered(package, folder, keep) if folder is not None else {}


@cache
def _registered(package: str, folder: str, keep: Keep | None) -> Mapping[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for module, file in _files(package, folder):
        source = scan.parse(module, file) if (keep is None or keep(module)) and _registers(file) else None
        if source is not None:
            found.update({(entry.table, entry.name): entry.target for entry in scan.registered(source)})
    return found


def _files(package: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield (module, file) of a package."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name.isidentifier())
        for name in sorted(names):
            if name.endswith(".py"):
                relative = os.path.relpath(os.path.join(root, name), folder)
                parts = [package, *relative.removesuffix(".py").split(os.sep)]
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), os.path.join(root, name)


def _registers(file: str) -> bool:
    """Look quickly, so that only one file of three has to be parsed."""
    with open(file, encoding="utf-8", errors="replace") as opened:
        return "register_module" in opened.read()
