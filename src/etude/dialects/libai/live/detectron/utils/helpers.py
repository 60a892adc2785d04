"""Small things that scripts of detectron2 take from its utilities."""

from __future__ import annotations

import functools
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import IO, Any

import numpy as np
import torch

from etude.dialects.libai.lazy.load import DetectronLazyConfig
from etude.dialects.libai.live.events import logger as shared
from etude.errors import MissingExtra


@dataclass
class ShapeSpec:
    """The shape of a feature map, as far as it is known."""

    channels: int | None = None
    height: int | None = None
    width: int | None = None
    stride: int | None = None


def reload_lazy_config(cfg: Any) -> Any:
    """Return ``cfg`` as it is after being saved to a file and read again."""
    with tempfile.TemporaryDirectory(prefix="detectron2") as folder:
        path = os.path.join(folder, "d2_cfg_test.yaml")
        DetectronLazyConfig.save(cfg, path)
        return DetectronLazyConfig.load(path)


def collect_env_info() -> str:
    """Return what a run depends on, one line each."""
    known = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "CUDA": torch.version.cuda if torch.cuda.is_available() else "none",
        "platform": platform.platform(),
    }
    return "\n".join(f"{name:<12}{value}" for name, value in known.items())


def setup_environment() -> None:
    """Nothing is to be set up; in detectron2 a user-defined module could."""


def create_small_table(small_dict: Mapping[str, float]) -> str:
    """A few numbers as a table with one row, for a line of the log."""
    names = [str(name) for name in small_dict]
    values = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in small_dict.values()]
    widths = [max(len(name), len(value), 3) for name, value in zip(names, values, strict=True)]
    rows = [[word.center(width) for word, width in zip(words, widths, strict=True)] for words in (names, values)]
    line = [f":{'-' * width}:" for width in widths]
    return "\n".join(["| " + " | ".join(rows[0]) + " |", "|" + "|".join(line) + "|", "| " + " | ".join(rows[1]) + " |"])


def retry_if_cuda_oom(func: Callable[..., Any]) -> Callable[..., Any]:
    """``func``, called again with the cache emptied, and then on the CPU, when a CUDA device has no memory left."""

    @functools.wraps(func)
    def tried(*args: Any, **kwargs: Any) -> Any:
        for _ in range(2):
            try:
                return func(*args, **kwargs)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()  # which does nothing where there is no device
        return func(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in kwargs.items()})

    return tried


def _on_cpu(value: Any) -> Any:
    is_there = isinstance(getattr(value, "device", None), torch.device) and hasattr(value, "to")
    return value.to("cpu") if is_there and value.device.type == "cuda" else value


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


def setup_logger(
    output: str | None = None,
    distributed_rank: int = 0,
    *,
    color: bool = True,
    name: str = "detectron2",
    abbrev_name: str | None = None,
) -> logging.Logger:
    """Set up a logger as LiBai's, under detectron2's name."""
    return shared.setup_logger(output, distributed_rank, color=color, name=name, abbrev_name=abbrev_name)
