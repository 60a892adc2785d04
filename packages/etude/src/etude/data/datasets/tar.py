"""Reads tar shards in the format of WebDataset: files with one stem are one sample."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.data.datasets.images import SUFFIXES, read_image
from etude.data.datasets.tables import paths_of
from etude.data.fingerprint import checksum_of_files
from etude.errors import ConfigError
from etude.errors.spelling import suggest


class Tar:
    """``000017.jpg`` and ``000017.cls`` of a shard are one sample; its ``parts`` come in the order they are named.

    The shards are indexed once, and a part is read where it lies; so the order is shuffled over all shards, an epoch
    can be resumed in its middle, and workers share the samples. Images are tensors in [0, 1], ``.cls`` whole numbers,
    ``.json`` plain values, ``.txt`` texts, ``.npy`` tensors; others are bytes. ``transform`` is
    applied to the first part.
    """

    def __init__(
        self,
        files: str | Sequence[str],
        parts: Sequence[str] = ("jpg", "cls"),
        size: int | tuple[int, int] | None = None,
        mode: str = "RGB",
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.files = paths_of(files, "Tar")
        self.parts, self.mode, self.transform = tuple(parts), mode, transform
        self.size = (size, size) if isinstance(size, int) else tuple(size) if size else None
        self.deterministic = transform is None
        self._samples: list[dict[str, tuple[int, int, int]]] = []
        for number, file in enumerate(self.files):
            self._samples += _index(file, number)
        for part in self.parts:
            if self._samples and part not in self._samples[0]:
                hint = suggest(part, self._samples[0])
                raise ConfigError(f"{self.files[0]}: samples have no part {part!r}", hint=hint)

    def __len__(self) -> int:
        return len(self._samples)

    def fingerprint(self) -> str:
        return checksum_of_files(self.files, root=self.files[0].parent)

    def __getitem__(self, index: int) -> Any:
        places = self._samples[index]
        values = [self._decoded(part, *places[part]) for part in self.parts]
        if self.transform is not None:
            values[0] = self.transform(values[0])
        return tuple(values) if len(values) > 1 else values[0]

    def _decoded(self, part: str, number: int, start: int, length: int) -> Any:
        with self.files[number].open("rb") as stream:
            stream.seek(start)
            data = stream.read(length)
        kind = f".{part.rpartition('.')[2].lower()}"
        if kind in SUFFIXES:
            return read_image(io.BytesIO(data), mode=self.mode, size=self.size)
        if kind == ".cls":
            return int(data)
        if kind == ".json":
            return json.loads(data)
        if kind in (".txt", ".text"):
            return data.decode()
        if kind == ".npy":
            return torch.from_numpy(np.load(io.BytesIO(data), allow_pickle=False))
        return data


def _index(file: Path, number: int) -> list[dict[str, tuple[int, int, int]]]:
    """List the samples of a shard: part → (shard, first byte, bytes)."""
    found: dict[str, dict[str, tuple[int, int, int]]] = {}
    try:
        with tarfile.open(file, "r:") as shard:
            for member in shard:
                if member.isfile():
                    folder, _, name = member.name.rpartition("/")
                    # As WebDataset has it: `1.seg.png` is the part `seg.png` of sample `1`.
                    stem, _, part = name.partition(".")
                    found.setdefault(f"{folder}/{stem}", {})[part] = (number, member.offset_data, member.size)
    except tarfile.TarError as error:
        raise ConfigError(f"Tar: {file} cannot be read: {error}", hint="shards must not be compressed") from error
    return list(found.values())
