"""Checks that a checkpoint is whole before anything of it is used, and finds the newest one that is."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection

from etude.checkpoint.formats.folders import damage
from etude.errors import ResumeError, printable

_NUMBERED = re.compile(r"\w*?_(\d{7,})(\.pth)?")


def require_whole(path: str, need: Collection[str] = ("model",)) -> None:
    """Refuse a checkpoint that somebody named and that is not whole."""
    if wrong := damage(path, need):
        raise ResumeError(f"{printable(path)}: {wrong}")


def newest_whole(last: str, logger: logging.Logger, need: Collection[str] = ("model",)) -> str:
    """``last``, or the newest whole checkpoint beside it when ``last`` is damaged, which is said.

    Empty when there is none at all.
    """
    for path in (last, *_earlier(last)):
        wrong = damage(path, need)
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
