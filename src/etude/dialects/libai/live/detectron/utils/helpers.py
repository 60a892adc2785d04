"""The path manager and the logger that scripts of detectron2 take from its utilities."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from etude.dialects.libai.live.events import logger as shared


@cache
def path_manager() -> Any:
    """Return detectron2's own manager where detectron2 is there, else one of iopath's that fetches addresses."""
    try:
        from detectron2.utils.file_io import PathManager  # the original's, which knows detectron2://

        return PathManager
    except ImportError:
        pass
    from iopath.common import file_io  # comes with fvcore

    manager = file_io.PathManager()
    manager.register_handler(file_io.HTTPURLHandler())
    manager.register_handler(file_io.OneDrivePathHandler())
    return manager


#: LiBai's, under detectron2's name.
setup_logger = partial(shared.setup_logger, name="detectron2")
