"""Whether a checkpoint is whole, found out before anything of it is used; and the newest one that is."""

from __future__ import annotations

import logging
import os
import re
import zipfile
from collections.abc import Collection

from etude.checkpoint import foreign
from etude.errors import ResumeError, printable

_NUMBERED = re.compile(r"\w*?_(\d{7,})(\.pth)?")


def fault(path: str, need: Collection[str] = ("model",)) -> str:
    """What is wrong with the checkpoint at ``path`` (a folder of LiBai's or a file of detectron2's); empty if nothing.

    Every byte is read and held against the checksums that torch writes. ``need`` names entries of a folder; ``a|b``:
    one of them.
    """
    if os.path.isfile(path):
        return _fault_of_file(path)
    if not os.path.isdir(path):
        return "it is not there"
    for words in need:
        if not any(os.path.exists(os.path.join(path, name)) for name in words.split("|")):
            return f"it has no entry {words!r}"
    for name in sorted(os.listdir(path)):
        entry = os.path.join(path, name)
        if os.path.isfile(entry) and not name.startswith(".") and (wrong := _fault_of_file(entry)):
            return f"{name}: {wrong}"
    return ""


def _fault_of_file(path: str) -> str:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            return f"the checksum of {printable(damaged)} differs" if damaged else ""
        foreign.read(path)
    except ResumeError as error:
        return str(error).removeprefix(f"{printable(path)}: ")
    except Exception as error:  # whatever a damaged archive makes zipfile trip over
        return f"damaged ({printable(str(error) or type(error).__name__)})"
    return ""


def require_whole(path: str, need: Collection[str] = ("model",)) -> None:
    """Refuse a checkpoint that somebody named and that is not whole."""
    if wrong := fault(path, need):
        raise ResumeError(f"{printable(path)}: {wrong}")


def newest_whole(last: str, logger: logging.Logger, need: Collection[str] = ("model",)) -> str:
    """``last``, or the newest whole checkpoint beside it when ``last`` is damaged, which is said.

    Empty when there is none at all.
    """
    for path in (last, *_earlier(last)):
        wrong = fault(path, need)
        if not wrong:
            return path
        logger.warning(f"the checkpoint {path} cannot be used ({wrong}), looking for an earlier one")
    return ""


def _earlier(last: str) -> list[str]:
    """The other periodic checkpoints of the folder, newest first."""
    folder = os.path.dirname(last)
    found = []
    for name in os.listdir(folder or "."):
        number = _NUMBERED.fullmatch(name)
        if number is not None and name != os.path.basename(last):
            found.append((int(number[1]), os.path.join(folder, name)))
    return [path for _, path in sorted(found, reverse=True)]
