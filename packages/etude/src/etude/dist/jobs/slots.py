"""A small file that always holds the newest of two texts. To write the next one needs no room on the disk.

The file is made in full at once, and each text goes into the half that the one before has not used. So a reader finds
one that is whole, even if the writer was killed, and a disk without a free block or inode silences nobody. Imports no
torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Bytes of a text.
_ROOM = 1 << 14


def write(path: Path, facts: Mapping[str, Any], number: int) -> None:
    """Write ``facts``, the ``number``-th ones of this process; their longest text is cut if there is no room for it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if number == 0 or os.fstat(file).st_size < 2 * _ROOM:  # another process may have left the file
            os.pwrite(file, b" " * 2 * _ROOM, 0)
        os.pwrite(file, _fitting({**facts, "number": number}).ljust(_ROOM), number % 2 * _ROOM)
    finally:
        os.close(file)


def read(path: Path) -> dict[str, Any] | None:
    """Return the newest facts; None if there are none."""
    data = path.read_bytes()
    found = []
    for half in (data[:_ROOM], data[_ROOM:]):
        with suppress(ValueError):
            found.append(json.loads(half))
    if not found:
        return None
    newest: dict[str, Any] = max(found, key=lambda facts: facts["number"])
    del newest["number"]
    return newest


def _fitting(facts: dict[str, Any]) -> bytes:
    text = json.dumps(facts).encode()
    while len(text) > _ROOM:
        longest = max(facts, key=lambda name: len(facts[name]) if isinstance(facts[name], str) else 0)
        facts[longest] = facts[longest][: len(facts[longest]) // 2]
        text = json.dumps(facts).encode()
    return text
