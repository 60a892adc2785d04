"""Locks a run folder for one writer; the kernel drops the lock when its owner dies."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType

from etude.errors import UserError, printable

NAME = ".lock"
_held: dict[int, Lock] = {}


class FolderInUse(UserError):
    """Another process writes to this run's folder."""


class Lock:
    """Holds ``folder`` from construction to :meth:`release`. A second holder is refused, and the message names the
    first.

    The lock belongs to the open file. Children made by ``fork`` (data workers) would keep the file open, and the folder
    locked, after their parent has died; so they close it first.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _describe(os.pread(self._fd, 4096, 0))
            os.close(self._fd)
            # EACCES is the other answer of POSIX for a lock that is held.
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise FolderInUse(f"run directory {folder} in use by {owner}") from None
        _held[self._fd] = self
        self._sign()

    def _sign(self) -> None:
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(facts).encode(), 0)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if _held.get(self._fd) is self:
            # The file stays: removing it could take the lock from a process that has just opened it.
            del _held[self._fd]
            os.close(self._fd)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def _describe(text: bytes) -> str:
    try:
        facts = json.loads(text)
        return printable(f"pid {facts['pid']} on {facts['host']} since {facts['since']}")
    except (ValueError, TypeError, KeyError):
        return "another process"


def _forget() -> None:
    for lock in list(_held.values()):
        lock.release()


os.register_at_fork(after_in_child=_forget)
