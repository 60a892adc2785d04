"""Computes fingerprints of data, so that a resume notices when the data has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

#: Of more than so many bytes only evenly spaced pieces are looked at.
_WHOLE = 1 << 28
_PIECES = 256
#: Of how many files sizes are asked for, how many bytes of them are read in all, and of how many files the beginning
#: is read where that is not all: a million pictures must not hold up the first save.
_SIZED = 20_000
_READ = 1 << 26
_BEGUN = 64
_BEGINNING = 4096


def fingerprint_of(dataset: Any) -> str:
    """Return a dataset's ``fingerprint`` (a text, or a method that gives one); of one that wraps another, what
    that answers; of tensors in memory, a checksum; of files that it lists as ``samples``, as torchvision does,
    :func:`checksum_of_files`; else nothing.

    >>> a, b = (torch.utils.data.TensorDataset(torch.tensor(rows)) for rows in ([1, 2, 3], [1, 2, 4]))
    >>> fingerprint_of(a) == fingerprint_of(a), fingerprint_of(a) == fingerprint_of(b), fingerprint_of([1, 2, 3])
    (True, False, '')
    """
    given = getattr(dataset, "fingerprint", None)
    if given is not None:
        return str(given() if callable(given) else given)
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, list | tuple) and tensors and all(isinstance(tensor, Tensor) for tensor in tensors):
        return checksum_of_tensors(tensors)
    files = _listed_files(dataset)
    if files:
        return checksum_of_files(files, root=str(getattr(dataset, "root", "") or os.path.commonpath(files)))
    inner = getattr(dataset, "dataset", None)
    return fingerprint_of(inner) if inner is not None and inner is not dataset else ""


def checksum_of_tensors(tensors: Iterable[Tensor]) -> str:
    """Return a short checksum of numbers, shapes and types."""
    total = 0
    for tensor in tensors:
        total = crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), total)
        for piece in _pieces(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)):
            total = crc32(piece.numpy().data, total)
    return f"{total:08x}"


def checksum_of_texts(texts: Iterable[str]) -> str:
    """Return a short checksum of names."""
    total = 0
    for text in texts:
        # File names need not be valid text. The zero byte keeps "ab", "c" apart from "a", "bc".
        total = crc32(text.encode("utf-8", "surrogatepass") + b"\0", total)
    return f"{total:08x}"


def checksum_of_files(paths: Sequence[str | os.PathLike[str]], *, root: str | os.PathLike[str]) -> str:
    """Return a short checksum of names below ``root``, sizes and content.

    Few files are read as a whole; of many, the sizes of some and the beginnings of fewer, evenly spaced, are looked at.
    When a file was written does not count: a copy of the data is the same data.
    """
    total = int(checksum_of_texts(os.path.relpath(path, root) for path in paths), 16)
    sized = _spaced(paths, _SIZED)
    sizes = [_size(path) for path in sized]
    total = crc32(repr(sizes).encode(), total)
    whole = len(sized) == len(paths) and sum(sizes) <= _READ
    for path in paths if whole else _spaced(paths, _BEGUN):
        total = crc32(_content(path, -1 if whole else _BEGINNING), total)
    return f"{total:08x}"


def _listed_files(dataset: Any) -> list[str]:
    """Return the paths in a list of (path, …), if the dataset has one."""
    samples = getattr(dataset, "samples", None)
    if not isinstance(samples, list) or not samples:
        return []
    paths = [sample[0] for sample in samples if isinstance(sample, list | tuple) and sample]
    whole = len(paths) == len(samples) and all(isinstance(path, str | os.PathLike) for path in paths)
    return [os.path.abspath(path) for path in paths] if whole and os.path.isfile(paths[0]) else []


def _spaced(paths: Sequence[Any], most: int) -> Sequence[Any]:
    return paths[:: max(1, -(-len(paths) // most))]


def _size(path: str | os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _content(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a file for the fingerprint. One that cannot be read is reported by whoever needs the sample."""
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def _pieces(content: Tensor) -> Iterable[Tensor]:
    if len(content) <= _WHOLE:
        return (content,)
    size, stride = _WHOLE // _PIECES, len(content) // _PIECES
    return (content[begin : begin + size] for begin in range(0, len(content), stride))
