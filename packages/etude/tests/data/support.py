"""What several tests of this room share."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import torch


def shard(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w") as made:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return str(path)


def iter_of(rows):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows)

    return Stream()


def pictures(folder: Path) -> Path:
    for name in ("cat/1.bmp", "cat/2.bmp", "dog/1.bmp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 2000)
    return folder


def repainted(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")
