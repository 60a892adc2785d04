"""iopath's handlers for addresses of the net: what is asked for is fetched once, and kept in a cache."""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import urlparse

from etude.dialects.libai.live.detectron.utils.paths import DETECTRON2, FVCORE, LIBAI, PathHandler, logger

_PATIENCE = 60.0


def get_cache_dir(cache_dir: str | None = None) -> str:
    """``cache_dir``, else ``$FVCORE_CACHE`` or ``~/.torch/iopath_cache``; where that cannot be, a temporary one."""
    wanted = cache_dir or os.path.expanduser(os.getenv("FVCORE_CACHE", "~/.torch/iopath_cache"))
    try:
        os.makedirs(wanted, exist_ok=True)
        if os.access(wanted, os.W_OK):
            return wanted
    except OSError:
        pass
    instead = os.path.join(tempfile.gettempdir(), "iopath_cache")
    logger.warning(f"{wanted} is not accessible! Using {instead} instead!")
    os.makedirs(instead, exist_ok=True)
    return instead


@contextmanager
def file_lock(path: str) -> Iterator[None]:
    """Alone with ``path`` among all processes of this machine; ``path.lock`` lies beside it."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(f"{path}.lock", "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


class HTTPURLHandler(PathHandler):
    """Files behind ``http://`` and the like, to be read."""

    def __init__(self) -> None:
        self.cache_map: dict[str, str] = {}

    def _get_supported_prefixes(self) -> list[str]:
        return ["http://", "https://", "ftp://"]

    def _get_local_path(self, path: str, force: bool = False, cache_dir: str | None = None, **kwargs: Any) -> str:
        self._check_kwargs(kwargs)
        kept = self.cache_map.get(path)
        if force or kept is None or not os.path.exists(kept):
            kept = self.cache_map[path] = _fetched(path, get_cache_dir(cache_dir), anew=force)
        return kept

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        self._check_kwargs(kwargs)
        assert mode in ("r", "rb"), f"{type(self).__name__} does not support open with {mode} mode"
        assert buffering == -1, f"{type(self).__name__} does not support the `buffering` argument"
        return open(self._get_local_path(path), mode)


def _fetched(url: str, folder: str, *, anew: bool) -> str:
    """The file of the cache with what is behind ``url``; it gets its name when all of it is there."""
    parsed = urlparse(url)
    inside = [part for part in parsed.path.split("/") if part not in ("", ".", "..")]
    target = os.path.join(folder, parsed.netloc.replace(":", "_"), *inside)
    with file_lock(target):
        if anew or not os.path.isfile(target):
            logger.info(f"Downloading {url} ...")
            unfinished = f"{target}.tmp-{os.getpid()}"
            with urllib.request.urlopen(url, timeout=_PATIENCE) as source, open(unfinished, "wb") as file:
                shutil.copyfileobj(source, file)
            os.replace(unfinished, target)
    logger.info(f"URL {url} cached in {target}")
    return target


class OneDrivePathHandler(HTTPURLHandler):
    """Short addresses of OneDrive."""

    ONE_DRIVE_PREFIX = "https://1drv.ms/u/s!"

    def create_one_drive_direct_download(self, one_drive_url: str) -> str:
        """The address that gives the file itself."""
        shared = base64.urlsafe_b64encode(one_drive_url.encode()).decode().rstrip("=")
        return f"https://api.onedrive.com/v1.0/shares/u!{shared}/root/content"

    def _get_supported_prefixes(self) -> list[str]:
        return [self.ONE_DRIVE_PREFIX]

    def _get_local_path(self, path: str, force: bool = False, cache_dir: str | None = None, **kwargs: Any) -> str:
        direct = self.create_one_drive_direct_download(path)
        return super()._get_local_path(direct, force=force, cache_dir=cache_dir, **kwargs)


class Detectron2Handler(PathHandler):
    """``detectron2://``: what the project keeps in the net."""

    PREFIX = "detectron2://"
    S3_DETECTRON2_PREFIX = "https://dl.fbaipublicfiles.com/detectron2/"

    def _get_supported_prefixes(self) -> list[str]:
        return [self.PREFIX]

    def _get_local_path(self, path: str, force: bool = False, **kwargs: Any) -> str:
        return DETECTRON2.get_local_path(self.S3_DETECTRON2_PREFIX + path.removeprefix(self.PREFIX), force, **kwargs)

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **kwargs: Any) -> IO[Any]:
        return DETECTRON2.open(self.S3_DETECTRON2_PREFIX + path.removeprefix(self.PREFIX), mode, buffering, **kwargs)


for manager in (FVCORE, DETECTRON2, LIBAI):
    manager.register_handler(HTTPURLHandler())
    manager.register_handler(OneDrivePathHandler())
DETECTRON2.register_handler(Detectron2Handler())
