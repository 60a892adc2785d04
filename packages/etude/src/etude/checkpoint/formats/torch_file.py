"""Writes a checkpoint as one file of torch, the way other systems do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from etude.checkpoint.storage import disk
from etude.errors import SaveError, printable


def save_file(path: str | os.PathLike[str], content: Any, *, mode: int = 0o600) -> None:
    """Write ``content`` to ``path``, completely or not at all. Raise :class:`~etude.errors.SaveError` if the disk
    refuses."""
    with reported(os.fspath(path)):
        disk.write_atomically(path, lambda file: torch.save(content, file), mode=mode)


@contextmanager
def reported(target: str) -> Iterator[None]:
    """Raise an error of the disk inside the block as a :class:`~etude.errors.SaveError` that names ``target``."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # torch's writer stumbles over the file it could not finish; the reason is what came before.
        reason = error if isinstance(error, OSError) else error.__context__
        if not isinstance(reason, OSError):
            raise
        raise SaveError(f"{printable(target)} could not be written: {reason.strerror or reason}") from reason


class Patience:
    """Tolerates a few failed saves in a row, because a full disk may have space at the next.

    >>> patience = Patience(most=2)
    >>> patience.forgive(SaveError("no space"), print)
    no space; training continues
    >>> patience.forgive(SaveError("no space"), print)
    Traceback (most recent call last):
    etude.errors.SaveError: no space; 2 saves in a row have failed
    """

    def __init__(self, most: int = 3) -> None:
        self.most, self.failures = most, 0

    def forgive(self, error: SaveError, say: Callable[[str], Any], *, last: bool = False) -> None:
        """Raise after too many failures, or if ``last``: no later save can make up for this one."""
        self.failures += 1
        if last:
            raise error
        if self.failures >= self.most:
            raise SaveError(f"{error}; {self.failures} saves in a row have failed") from error
        say(f"{error}; training continues")

    def renew(self) -> None:
        """Count from zero again: a save succeeded."""
        self.failures = 0
