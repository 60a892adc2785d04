"""Small things that scripts import along the way."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import IO, Any


@dataclass
class ShapeSpec:
    """The shape of a feature map, as far as it is known."""

    channels: int | None = None
    height: int | None = None
    width: int | None = None
    stride: int | None = None


class PathManager:
    """File access of scripts that allow for remote paths; here every path is local."""

    @staticmethod
    def open(path: str, mode: str = "r", **options: Any) -> IO[Any]:
        return open(path, mode, **options)

    exists = staticmethod(os.path.exists)
    isfile = staticmethod(os.path.isfile)
    isdir = staticmethod(os.path.isdir)
    ls = staticmethod(os.listdir)
    copy = staticmethod(shutil.copyfile)

    @staticmethod
    def mkdirs(path: str) -> None:
        os.makedirs(path, exist_ok=True)

    @staticmethod
    def rm(path: str) -> None:
        os.remove(path)

    @staticmethod
    def get_local_path(path: str, **options: Any) -> str:
        return path
