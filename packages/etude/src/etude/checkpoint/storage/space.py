"""Explains why a checkpoint did not fit: what it needs, in blocks of the disk, and what the disk has."""

from __future__ import annotations

import os
from collections.abc import Iterable

from etude.units import human

#: Beside its files a checkpoint has a manifest and a folder, and ``latest`` is written anew.
_BESIDE = 3


def explain(folder: str, sizes: Iterable[int], *, local: bool = True) -> str:
    """Return ``need 412 MB, have 80 MB``, or other possible causes if there was enough space."""
    sizes = list(sizes)
    info = _where(folder) if local else None
    if info is None:
        return f"need {human(sum(sizes))}"
    block = info.f_frsize or 1
    # In whole blocks: in bytes, a save that just did not fit would seem to.
    need = sum(-(-size // block) * block for size in sizes) + _BESIDE * block
    have = info.f_bavail * block
    if have < need:
        return f"need {_exact(need, have)}, have {_exact(have, need)}"
    files = len(sizes) + _BESIDE
    # What was written of the save is removed by now, and has given back some of them.
    if info.f_files and info.f_favail < files:
        return f"need {files} new files, have {info.f_favail} (no inodes are left)"
    return f"need {human(need)}, have {human(have)} now: a quota, or other programs used the space"


def _exact(size: int, other: int) -> str:
    """Format a size for people; to the byte if it would look the same as ``other``."""
    return human(size) if human(size) != human(other) else f"{size:,} bytes"


def _where(folder: str) -> os.statvfs_result | None:
    """Return the file system of ``folder``, or of its nearest parent that exists."""
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    try:
        return os.statvfs(folder)
    except OSError:
        return None
