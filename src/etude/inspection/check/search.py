"""Finds the import that would add an unknown name, in the Python files beside a config."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from etude.errors import nearest
from etude.inspection import signatures as scan
from etude.registry import TABLES

_MOST_FILES = 200
_LARGEST = 500_000


def import_that_adds(name: str, folders: Sequence[str], *, exact: bool) -> str | None:
    """Return a hint that names the file to import; ``exact=False`` also finds similar names."""
    words = {word.upper() for word in TABLES}
    found: dict[str, str] = {}
    for path, entry in _files(folders):
        if not _mentions_registering(path):
            continue
        source_name = os.path.splitext(os.path.basename(path))[0]
        for registered in scan.registrations(source_name, path):
            if registered.table in words and registered.file == path:
                found.setdefault(registered.name, entry)
    meant = name if name in found else None if exact else nearest(name, list(found))
    if meant is None:
        return None
    asked = "" if meant == name else f"did you mean {meant!r}? "
    return f"{asked}{found[meant]} registers it: write imports: [{found[meant]}]"


def _files(folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield Python files in the folders and one level below, with their name for ``imports``."""
    count = 0
    for folder in folders:
        for top, names, files in os.walk(folder):
            depth = os.path.relpath(top, folder).count(os.sep) + (top != folder)
            names[:] = [] if depth >= 1 else sorted(n for n in names if not n.startswith((".", "_")) and n != "runs")
            for file in sorted(files):
                if file.endswith(".py") and count < _MOST_FILES:
                    count += 1
                    path = os.path.join(top, file)
                    yield path, os.path.relpath(path, folder)


def _mentions_registering(path: str) -> bool:
    try:
        if os.path.getsize(path) > _LARGEST:
            return False
        with open(path, "rb") as file:
            return b".register" in file.read()
    except OSError:
        return False
