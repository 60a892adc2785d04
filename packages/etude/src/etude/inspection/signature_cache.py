"""Caches the signatures of torch's, Étude's and guests' components in the user's cache folder.

Reading a signature from its source takes a few milliseconds per file, and most configs name the same few classes. An
entry is valid while the files it was read from have the same size and time. A cache that is missing, damaged or
read-only only costs time.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any
from zlib import crc32

from etude.errors.own_code import is_own
from etude.fast_dataclass import replace
from etude.inspection import signatures as scan
from etude.inspection.signatures import Parameter, Signature

#: Packages whose signatures are cached in addition to Étude's own.
_PACKAGES = ("torch",)
#: Raise this number when the form of entries changes.
_FORM = 1
_MOST_ENTRIES = 20_000


def cached(target: str) -> Signature | None:
    """Return the signature of ``module:attr``; None for components of other packages, which are not cached."""
    top = target.partition(":")[0].partition(".")[0]
    if top not in _PACKAGES and not is_own(top):
        return None
    entries = _entries()
    entry = entries.get(target)
    with suppress(KeyError, TypeError, ValueError, AttributeError):  # a damaged entry is read anew
        if entry is not None and all(_stamp(file) == stamp for file, stamp in entry["files"].items()):
            return _from_json(entry["signature"])
    found = scan.signature(target)
    if found is not None and top in _PACKAGES:
        found = replace(found, doc="")  # their prose is their own
    files = _files_of(target, found)
    if files and len(entries) < _MOST_ENTRIES:
        entries[target] = {"files": files, "signature": None if found is None else _to_json(found)}
        _store_at_exit()
    return found


def path() -> str:
    """Return the file of the cache. Environments with other packages, or another copy of Étude, have another one."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    key = crc32("\n".join([sys.prefix, sys.version, str(_FORM), __file__]).encode())
    return os.path.join(home, "etude", f"signatures-{key:08x}.json")


def store() -> None:
    """Write the cache. Nothing happens if the folder cannot be written."""
    import tempfile  # only where something is new: most commands do without it

    name = path()
    with suppress(OSError):
        os.makedirs(os.path.dirname(name), mode=0o700, exist_ok=True)
        number, part = tempfile.mkstemp(dir=os.path.dirname(name), suffix=".part")
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(_entries(), file, separators=(",", ":"))
            os.replace(part, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise


@cache
def _entries() -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError), open(path(), encoding="utf-8") as file:
        read = json.load(file)
        if isinstance(read, dict):
            return read
    return {}


@cache
def _store_at_exit() -> None:
    """Store what this process adds, once, when it ends; a fork leaves it to its parent."""
    owner = os.getpid()
    atexit.register(lambda: store() if os.getpid() == owner else None)


@cache
def _stamp(file: str) -> list[int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size]


def _files_of(target: str, found: Signature | None) -> dict[str, list[int]]:
    """Return the files that a signature comes from with their stamps: its own and those of its ancestors."""
    modules = {origin.partition(":")[0] for origin in (target, *(found.bases if found is not None else ()))}
    sources = [scan.find_source(module) for module in sorted(modules)]
    stamps = {source.file: _stamp(source.file) for source in sources if source is not None}
    return {file: stamp for file, stamp in stamps.items() if stamp is not None}


def _to_json(signature: Signature) -> dict[str, Any]:
    parameters = [[p.name, p.annotation, p.default, p.word] for p in signature.parameters]
    rest = {name: getattr(signature, name) for name in ("open", "is_class", "doc", "forwards")}
    return {"parameters": parameters, "bases": list(signature.bases), **rest}


def _from_json(data: dict[str, Any] | None) -> Signature | None:
    if data is None:
        return None
    parameters = tuple(Parameter(*fields) for fields in data["parameters"])
    return Signature(**{**data, "parameters": parameters, "bases": tuple(data["bases"])})
