"""``libai.utils.file_utils``: downloads files into a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.request
from typing import Any
from urllib.parse import urlparse


def cached_path(url_or_filename: Any, cache_dir: Any = None, force_download: bool = False, proxies: Any = None) -> str:
    """Return a local path: the file itself, or the downloaded copy of a URL."""
    name: str = os.fspath(url_or_filename)
    if urlparse(name).scheme in ("http", "https", "ftp"):
        kept = os.fspath(cache_dir) if cache_dir is not None else os.path.expanduser("~/.cache/libai")
        return get_data_from_cache(name, kept, force_download)
    if os.path.exists(name):
        return name
    raise OSError(f"file {name} not found")


def get_md5(fname: str) -> str:
    with open(fname, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download_file(out_path: str, url: str) -> None:
    """Download ``url`` to ``out_path``. The file appears only when it is complete."""
    part = f"{out_path}.part"
    with urllib.request.urlopen(url, timeout=60) as source, open(part, "wb") as target:
        shutil.copyfileobj(source, target)
    os.replace(part, out_path)


def get_data_from_cache(url: str, cache_dir: Any = None, force_download: bool = False, md5: str | None = None) -> str:
    """Return the file of ``url`` in ``cache_dir``. It is downloaded unless it is there with the right checksum."""
    folder = os.fspath(cache_dir) if cache_dir is not None else "data_test"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(urlparse(url).path))
    if force_download or not os.path.isfile(path) or (md5 is not None and get_md5(path) != md5):
        download_file(path, url)
    return path
