"""Helpers for files and folders: ``mkdir_or_exist``, ``scandir``, ``symlink`` …"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO


def is_filepath(x: Any) -> bool:
    return isinstance(x, str | Path)


def is_abs(path: str) -> bool:
    """Return whether ``path`` is absolute or a URL (``s3://``, ``http://`` …)."""
    return os.path.isabs(path) or path.startswith(("http://", "https://", "s3://", "petrel://"))


def fopen(filepath: Any, *args: Any, **kwargs: Any) -> TextIO:
    if not is_filepath(filepath):
        raise ValueError("`filepath` should be a string or a Path")
    return open(filepath, *args, **kwargs)  # type: ignore[no-any-return]


def check_file_exist(filename: Any, msg_tmpl: str = 'file "{}" does not exist') -> None:
    if not os.path.isfile(filename):
        raise FileNotFoundError(msg_tmpl.format(filename))


def mkdir_or_exist(dir_name: Any, mode: int = 0o777) -> None:
    if dir_name != "":
        os.makedirs(os.path.expanduser(dir_name), mode=mode, exist_ok=True)


def symlink(src: Any, dst: Any, overwrite: bool = True, **kwargs: Any) -> None:
    if os.path.lexists(dst) and overwrite:
        os.remove(dst)
    os.symlink(src, dst, **kwargs)


def scandir(
    dir_path: Any, suffix: str | tuple[str, ...] | None = None, recursive: bool = False, case_sensitive: bool = True
) -> Iterator[str]:
    """Yield the paths, relative to ``dir_path``, of its files that are not hidden."""
    if not is_filepath(dir_path):
        raise TypeError('"dir_path" must be a string or Path object')
    if suffix is not None and not isinstance(suffix, str | tuple):
        raise TypeError('"suffix" must be a string or tuple of strings')
    if suffix is not None and not case_sensitive:
        suffix = suffix.lower() if isinstance(suffix, str) else tuple(item.lower() for item in suffix)
    return _scan(str(dir_path), str(dir_path), suffix, recursive, case_sensitive)


def _scan(
    root: str, folder: str, suffix: str | tuple[str, ...] | None, recursive: bool, case_sensitive: bool
) -> Iterator[str]:
    for entry in os.scandir(folder):
        if not entry.name.startswith(".") and entry.is_file():
            relative = os.path.relpath(entry.path, root)
            name = relative if case_sensitive else relative.lower()
            if suffix is None or name.endswith(suffix):
                yield relative
        elif recursive and os.path.isdir(entry.path):
            yield from _scan(root, entry.path, suffix, recursive, case_sensitive)


def find_vcs_root(path: Any, markers: tuple[str, ...] = (".git",)) -> str | None:
    """Return ``path`` or the nearest folder above it that contains one of ``markers``."""
    folder = Path(path).resolve()
    folder = folder.parent if folder.is_file() else folder
    for candidate in (folder, *folder.parents):
        if any((candidate / marker).exists() for marker in markers):
            return str(candidate)
    return None
