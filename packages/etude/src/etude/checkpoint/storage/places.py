"""Stores checkpoints on the local disk, or on any file system that fsspec knows (``memory://``, ``s3://`` …)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import IO, Any, Protocol, TypeVar

from etude.checkpoint.storage import disk as local
from etude.errors import UserError, optional, printable

T = TypeVar("T")
_TRIES = 4


class FileWriter(Protocol):
    """A new file that is being filled."""

    def write(self, data: memoryview | bytes) -> int: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """The calls that a store makes. ``RENAMES`` says whether a folder can be renamed atomically."""

    RENAMES: bool

    def join(self, folder: str, name: str) -> str: ...
    def make_folder(self, path: str) -> None: ...
    def create(self, path: str) -> FileWriter: ...
    def put(self, path: str, pieces: Iterable[memoryview | bytes]) -> None: ...
    def sync_folder(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def names(self, path: str) -> list[str]: ...
    def open_file(self, path: str) -> IO[bytes]: ...
    def write_atomically(self, path: str, write: Callable[[IO[bytes]], Any]) -> None: ...


class LocalDisk:
    """The local disk: :mod:`etude.checkpoint.storage.disk`, call by call."""

    RENAMES = True
    join = staticmethod(os.path.join)
    make_folder = staticmethod(local.make_folder)
    create = staticmethod(local.Writer)

    @staticmethod
    def put(path: str, pieces: Iterable[memoryview | bytes]) -> None:
        _fill(local.Writer(path), pieces)

    sync_folder = staticmethod(local.sync_folder)
    rename = staticmethod(local.rename)
    remove = staticmethod(local.remove)
    remove_tree = staticmethod(local.remove_tree)
    names = staticmethod(local.names)
    open_file = staticmethod(local.open_file)
    write_atomically = staticmethod(local.write_atomically)


class RemoteDisk:
    """A file system of fsspec. A call that fails is repeated a few times, with longer and longer waits.

    Object stores cannot rename a folder in one stroke; there a checkpoint is complete when its manifest is there,
    which comes last.
    """

    RENAMES = False

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def join(self, folder: str, name: str) -> str:
        return f"{folder.rstrip('/')}/{name}"

    def make_folder(self, path: str) -> None:
        _again("mkdir", path, lambda: self._fs.makedirs(path, exist_ok=True))

    def create(self, path: str) -> FileWriter:
        return _RemoteWriter(self._fs, path)

    def put(self, path: str, pieces: Iterable[memoryview | bytes]) -> None:
        """Upload a whole file. It is kept until it has arrived, so that a broken upload starts again from the
        beginning."""
        _again("put", path, lambda: _fill(_RemoteWriter(self._fs, path), pieces))

    def sync_folder(self, path: str) -> None:
        local.ask("fsync_folder", path)

    def rename(self, source: str, target: str) -> None:
        _again("rename", target, lambda: self._fs.mv(source, target, recursive=True))

    def remove(self, path: str) -> None:
        # An attempt whose answer was lost may have removed it already.
        _again("remove", path, lambda: self._fs.rm_file(path) if self._fs.exists(path) else None)

    def remove_tree(self, path: str) -> None:
        _again("rmdir", path, lambda: self._fs.rm(path, recursive=True) if self._fs.exists(path) else None)

    def names(self, path: str) -> list[str]:
        def listed() -> list[str]:
            # fsspec remembers listings, which then lag behind.
            self._fs.invalidate_cache(path)
            return sorted(os.path.basename(entry.rstrip("/")) for entry in self._fs.ls(path, detail=False))

        try:
            return _again("list", path, listed)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def open_file(self, path: str) -> IO[bytes]:
        opened: IO[bytes] = _again("open", path, lambda: self._fs.open(path, "rb"))
        return opened

    def write_atomically(self, path: str, write: Callable[[IO[bytes]], Any]) -> None:
        with self._fs.open(path, "wb") as file:
            write(file)


class _RemoteWriter:
    """An upload. It is complete when ``sync`` returns and the remote size is the size sent."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self.path, self._sent = fs, path, 0
        self._file: Any = _again("create", path, lambda: fs.open(path, "wb"))

    def write(self, data: memoryview | bytes) -> int:
        local.ask("write", self.path, len(data))
        view = memoryview(data).cast("B")
        for begin in range(0, len(view), local.PIECE):
            self._file.write(view[begin : begin + local.PIECE])
        self._sent += len(view)
        return len(view)

    def sync(self) -> None:
        self.close()
        # An object store may keep a part of an upload without an error.
        arrived = _again("fsync", self.path, lambda: self._fs.size(self.path))
        if arrived != self._sent:
            raise OSError(f"{self.path}: {arrived} of {self._sent} bytes arrived")

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def _fill(writer: FileWriter, pieces: Iterable[memoryview | bytes]) -> None:
    """Write a whole file, and return when it is on the disk."""
    try:
        for piece in pieces:
            writer.write(piece)
        writer.sync()
    finally:
        writer.close()


def _again(call: str, path: str, attempt: Callable[[], T]) -> T:
    """Return the result of ``attempt``; repeat it after errors that a network may cause, not if the file is missing."""
    for wait in (*(0.1 * 2**n for n in range(_TRIES - 1)), None):
        try:
            local.ask(call, path)
            return attempt()
        except (FileNotFoundError, PermissionError):
            raise
        except OSError:
            if wait is None:
                raise
            time.sleep(wait)
    raise AssertionError("unreachable")


def locate(folder: str | os.PathLike[str]) -> tuple[Disk, str]:
    """Return the disk that ``folder`` is on, and its path there."""
    text = local_path(os.fspath(folder))
    if "://" not in text:
        return LocalDisk(), os.path.abspath(text)
    fsspec = optional("fsspec", "torch", f"the path {text}")
    try:
        fs, path = fsspec.core.url_to_fs(text)
    except (ValueError, ImportError) as error:
        raise UserError(f"{printable(text)}: {printable(str(error))}") from None
    return RemoteDisk(fs), str(path)


def local_path(path: str) -> str:
    """Return ``/a/b`` for ``file:///a/b``, so that it counts as local disk; any other path stays as it is."""
    scheme, found, rest = path.partition("://")
    return rest if found and scheme in ("file", "local") else path
