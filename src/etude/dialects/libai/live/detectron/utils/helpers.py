"""The path manager and the logger that scripts of detectron2 take from its utilities."""

from __future__ import annotations

import os
from functools import cache, partial
from typing import IO, Any

from etude.dialects.libai.live.events import logger as shared
from etude.errors import MissingExtra


class LocalFiles:
    """The part of iopath's ``PathManager`` that training needs."""

    def open(self, path: str, mode: str = "r", **kwargs: Any) -> IO[Any]:
        return open(self.get_local_path(path), mode, **kwargs)

    def exists(self, path: str) -> bool:
        return os.path.exists(self.get_local_path(path))

    def isfile(self, path: str) -> bool:
        return os.path.isfile(self.get_local_path(path))

    def mkdirs(self, path: str) -> None:
        os.makedirs(self.get_local_path(path), exist_ok=True)

    def get_local_path(self, path: str, **kwargs: Any) -> str:
        if "://" in path:
            raise MissingExtra("iopath", "detectron2", f"to read {path}, Étude")
        return os.fspath(path)


@cache
def path_manager() -> Any:
    """Return detectron2's own manager where detectron2 is there, else one that fetches addresses, else local files."""
    try:
        from detectron2.utils.file_io import PathManager  # the original's, which knows detectron2://

        return PathManager
    except ImportError:
        pass
    try:
        from iopath.common import file_io
    except ImportError:
        return LocalFiles()
    manager = file_io.PathManager()
    manager.register_handler(file_io.HTTPURLHandler())
    manager.register_handler(file_io.OneDrivePathHandler())
    return manager


#: LiBai's, under detectron2's name.
setup_logger = partial(shared.setup_logger, name="detectron2")
