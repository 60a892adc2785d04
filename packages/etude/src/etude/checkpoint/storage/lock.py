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
        self._fd = self._take()

    def _take(self) -> int:
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = describe(os.pread(fd, 4096, 0))
            os.close(fd)
            # EACCES is the other answer of POSIX for a lock that is held.
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise FolderInUse(f"run directory {self.path.parent} in use by {owner}") from None
        _held[fd] = self
        _sign(fd)
        return fd

    def is_in_place(self) -> bool:
        """Return whether the file that is locked is still the one in the folder; someone may have deleted it."""
        try:
            there, own = os.stat(self.path, follow_symlinks=False), os.fstat(self._fd)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # a disk that fails is for the saves to report
            return True
        return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)

    def retake(self) -> None:
        """Lock the folder again after someone has deleted the file; refused if another process was faster."""
        if not self.is_in_place():
            before, self._fd = self._fd, self._take()
            del _held[before]
            os.close(before)

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


def _sign(fd: int) -> None:
    facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(facts).encode(), 0)


def describe(text: bytes) -> str:
    """Return who has signed a lock, for a message."""
    try:
        facts = json.loads(text)
        return printable(f"pid {facts['pid']} on {facts['host']} since {facts['since']}")
    except (ValueError, TypeError, KeyError):
        return "another process"


def _forget() -> None:
    for lock in list(_held.values()):
        lock.release()


os.register_at_fork(after_in_child=_forget)
