"""Makes every file-system call of checkpoints, so that a test can fail, delay or tear the n-th of them.

A *gate* is asked before each call. It may raise (the call fails), sleep (the disk is slow), end the process (a crash
right there), or raise :class:`Torn` (only the first bytes of a write arrive). There is none in a normal run.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol, cast

#: Writes are cut into pieces of this size: small enough to be hashed in parallel, large enough to cost nothing.
PIECE = 8 << 20


class Gate(Protocol):
    """Asked before every call: its name (``write``, ``fsync``, ``rename`` …), the path, the bytes to be written."""

    def __call__(self, call: str, path: str, size: int) -> None: ...


class Torn(Exception):
    """Raised by a gate at a write: ``keep`` bytes arrive, then ``error`` is raised."""

    def __init__(self, keep: int, error: OSError) -> None:
        self.keep, self.error = keep, error
        super().__init__(f"torn after {keep} bytes")


_gate: Gate | None = None
_last_call = ""


@contextmanager
def gated(gate: Gate) -> Iterator[None]:
    """Send all calls inside the block, of any thread, through ``gate`` first."""
    before = set_gate(gate)
    try:
        yield
    finally:
        set_gate(before)


def set_gate(gate: Gate | None) -> Gate | None:
    """Put ``gate`` (or none) in front of all calls; return the previous one."""
    global _gate
    before, _gate = _gate, gate
    return before


def last_call() -> str:
    """Return the last call, ``fsync …/model.safetensors``: what a save that hangs waits for."""
    return _last_call


def ask(call: str, path: str, size: int = 0) -> None:
    """Pass every call through the gate before it is made."""
    global _last_call
    _last_call = f"{call} {path}"
    if _gate is not None:
        _gate(call, path, size)


# -- writing -----------------------------------------------------------------------------------------------------------


class Writer:
    """A new file, opened so that nothing can be written through a link or over an existing file."""

    def __init__(self, path: str, mode: int = 0o600) -> None:
        self.path = path
        ask("create", path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, mode), "wb", buffering=0)

    def write(self, data: memoryview | bytes) -> int:
        """Write all of ``data``, in pieces, and return the number of bytes."""
        view = memoryview(data).cast("B")
        for begin in range(0, len(view), PIECE):
            self._write_piece(view[begin : begin + PIECE])
        return len(view)

    def _write_piece(self, view: memoryview) -> None:
        try:
            ask("write", self.path, len(view))
        except Torn as torn:
            self._write_all(view[: torn.keep])
            raise torn.error from None
        self._write_all(view)

    def _write_all(self, view: memoryview) -> None:
        while len(view):
            view = view[self._file.write(view) :]

    def sync(self) -> None:
        """Return when the bytes are on the disk."""
        ask("fsync", self.path)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file without syncing it."""
        self._file.close()


class FileWriter(Protocol):
    """A new file that is being filled, on any file system."""

    def write(self, data: memoryview | bytes) -> int: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


def fill(writer: FileWriter, pieces: Iterable[memoryview | bytes]) -> None:
    """Write a whole file, and return when it is on the disk."""
    try:
        for piece in pieces:
            writer.write(piece)
        writer.sync()
    finally:
        writer.close()


def make_folder(path: str, *, mode: int = 0o700) -> None:
    """Create ``path`` and missing parents, by default readable by the owner alone; no error if it exists."""
    ask("mkdir", path)
    os.makedirs(path, mode=mode, exist_ok=True)


def sync_folder(path: str) -> None:
    """Make the names in ``path`` durable: a rename is safe only after this."""
    ask("fsync_folder", path)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def rename(source: str, target: str) -> None:
    """Rename a file on the same file system, replacing the target."""
    ask("rename", target)
    os.rename(source, target)


def remove(path: str) -> None:
    """Remove a file or link; no error if it is gone already."""
    ask("remove", path)
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str) -> None:
    """Remove a folder and everything in it, never following a link; no error if it is gone already."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(info.st_mode):
        remove(path)
        return
    # Each file is a separate call, so that a test can end the process between any two.
    for name in os.listdir(path):
        remove_tree(os.path.join(path, name))
    ask("rmdir", path)
    os.rmdir(path)


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], Any], *, mode: int = 0o600) -> None:
    """Write ``path`` with ``write(file)``, completely or not at all.

    A temporary file in the same folder is filled, synced and renamed; when anything fails it is removed and what was
    at ``path`` before is untouched. A link at ``path`` is followed once, so that its target is replaced. The file is
    the owner's alone; ``mode=0o666`` leaves that to the umask, as for files that others are to load.
    """
    # A link at `path` stays one: the rename replaces what it leads to.
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    # Names have 255 bytes at most. Two threads may write the same file at the same time.
    temporary = os.path.join(folder, f".{name[:200]}.tmp-{os.getpid()}-{threading.get_ident()}")
    remove(temporary)
    writer = Writer(temporary, mode)
    try:
        # Closing the file flushes its buffer; the writer's own descriptor stays open for the fsync.
        with os.fdopen(os.dup(writer._file.fileno()), "wb") as file:
            write(cast(IO[bytes], _Gated(file, temporary)))
        writer.sync()
        writer.close()
        rename(temporary, target)
        sync_folder(folder)
    except BaseException:
        writer.close()
        with suppress(OSError):  # the error that made it necessary counts
            remove(temporary)
        raise


class _Gated:
    """A binary file whose writes pass the gate; everything else is the file's own."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file, self._path = file, path

    def write(self, data: Any) -> int:
        try:
            ask("write", self._path, len(data))
        except Torn as torn:
            self._file.write(memoryview(data)[: torn.keep])
            raise torn.error from None
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


# -- reading -----------------------------------------------------------------------------------------------------------


def open_file(path: str) -> IO[bytes]:
    """Open an ordinary file for reading; refuse a link, a pipe or a device in its place."""
    ask("open", path)
    # Opening a pipe would otherwise wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not an ordinary file", path)
    return os.fdopen(fd, "rb", buffering=0)


def names(path: str) -> list[str]:
    """List a folder, sorted; nothing when there is no such folder."""
    ask("list", path)
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
