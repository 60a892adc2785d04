"""Reads idx files, the format of MNIST and Fashion-MNIST: a header of sizes, then the numbers."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.data.datasets.missing import not_there
from etude.data.fingerprint import checksum_of_tensors
from etude.errors import ConfigError, DataError
from etude.errors.spelling import suggest

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PREFIXES = {"train": "train", "val": "t10k", "test": "t10k"}


class Idx:
    """Images and labels of a folder with ``train-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte`` …, gzipped or not.

    Samples are float32 in [0, 1] of shape (1, height, width), or (height · width,) with ``flat=True``, and an int64
    label. The images stay bytes in memory; a batch becomes float when it is taken. ``split``: ``train``, or ``val``
    (also called ``test``).
    """

    deterministic = True

    def __init__(self, folder: str, split: str = "train", flat: bool = False) -> None:
        if split not in _PREFIXES:
            raise ConfigError(f"Idx: no split is called {split!r}", hint=suggest(split, _PREFIXES))
        prefix = _PREFIXES[split]
        self.images = torch.from_numpy(read_idx(_find(folder, f"{prefix}-images*")))
        self.labels = torch.from_numpy(read_idx(_find(folder, f"{prefix}-labels*"))).long()
        if len(self.images) != len(self.labels):
            raise DataError(f"{folder}: {len(self.images)} images but {len(self.labels)} labels")
        self.flat = flat

    def __len__(self) -> int:
        return len(self.labels)

    def fingerprint(self) -> str:
        return checksum_of_tensors([self.images, self.labels])

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        images, labels = self.fetch(torch.tensor([index]))
        return images[0], labels[0]

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        pixels = self.images.index_select(0, indices).float().div_(255.0)
        return pixels.flatten(1) if self.flat else pixels.unsqueeze(1), self.labels.index_select(0, indices)


def read_idx(path: Path | str) -> np.ndarray[Any, Any]:
    """Return the array in an idx file. Raise :class:`~etude.errors.DataError` if the file is damaged or of another
    format."""
    path = Path(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise DataError(f"{path} is not an idx file")
    kind, dimensions = np.dtype(_TYPES[data[2]]), data[3]
    begin = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(data[place : place + 4]) for place in range(4, begin, 4))
    if len(data) - begin != math.prod(shape) * kind.itemsize:
        raise DataError(f"{path} is cut short or has a wrong header: {len(data)} bytes for an array of {shape}")
    # torch takes no arrays of the other byte order. The copy can be written to, unlike the bytes.
    return np.frombuffer(data, dtype=kind, offset=begin).reshape(shape).astype(kind.newbyteorder("="))


def _find(folder: str, pattern: str) -> Path:
    if not Path(folder).expanduser().is_dir():
        raise not_there("Idx", folder, "folder")
    found = sorted(Path(folder).expanduser().glob(pattern))
    if not found:
        raise ConfigError(f"Idx: there is no file {pattern} in {folder}")
    return found[0]
