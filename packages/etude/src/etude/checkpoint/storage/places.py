"""Stores checkpoints on the local disk, or on any file system that fsspec knows (``memory://``, ``s3://`` …)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import IO, Any, Protocol

from etude.checkpoint.storage import disk as local
from etude.checkpoint.storage import remote
from etude.checkpoint.storage.disk import FileWriter


class Disk(Protocol):
    """The calls that a store makes. ``RENAMES`` says whether a folder can be renamed atomically."""

    RENAMES: bool

    def join(self, folder: str, name: str) -> str: ...
    def url(self, path: str) -> str: ...
    def make_folder(self, path: str) -> None: ...
    def create(self, path: str) -> FileWriter: ...
    def put(self, path: str, pieces: Iterable[memoryview | bytes]) -> None: ...
    def sync_folder(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def names(self, path: str) -> list[str]: ...
    def exists(self, path: str) -> bool: ...
    def open_file(self, path: str) -> IO[bytes]: ...
    def write_atomically(self, path: str, write: Callable[[IO[bytes]], Any]) -> None: ...


class LocalDisk:
    """The local disk: :mod:`etude.checkpoint.storage.disk`, call by call."""

    RENAMES = True
    join = staticmethod(os.path.join)
    url = staticmethod(os.fspath)
    make_folder = staticmethod(local.make_folder)
    create = staticmethod(local.Writer)

    @staticmethod
    def put(path: str, pieces: Iterable[memoryview | bytes]) -> None:
        local.fill(local.Writer(path), pieces)

    sync_folder = staticmethod(local.sync_folder)
    rename = staticmethod(local.rename)
    remove = staticmethod(local.remove)
    remove_tree = staticmethod(local.remove_tree)
    names = staticmethod(local.names)
    exists = staticmethod(os.path.lexists)
    open_file = staticmethod(local.open_file)
    write_atomically = staticmethod(local.write_atomically)


def locate(folder: str | os.PathLike[str]) -> tuple[Disk, str]:
    """Return the disk that ``folder`` is on, and its path there."""
    text = local_path(os.fspath(folder))
    if "://" not in text:
        return LocalDisk(), os.path.abspath(text)
    return remote.connect(text)


def local_path(path: str) -> str:
    """Return ``/a/b`` for ``file:///a/b``, so that it counts as local disk; any other path stays as it is."""
    scheme, found, rest = path.partition("://")
    return rest if found and scheme in ("file", "local") else path
