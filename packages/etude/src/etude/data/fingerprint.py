"""Computes fingerprints of data, so that a resume notices when the data has changed."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

#: Of more than so many bytes only evenly spaced pieces are looked at.
_WHOLE = 1 << 28
_PIECES = 256
#: Of how many files sizes are asked for, how many bytes of them are read in all, and of how many files the beginning
#: is read where that is not all: a million pictures must not hold up the first save.
_SIZED = 20_000
_READ = 1 << 26
_BEGUN = 64
_BEGINNING = 4096
#: Attributes of a dataset that are looked at, and datasets inside of one another.
_MOST_FIELDS, _DEEPEST = 100, 4
#: Names of attributes that change while a dataset is read, or say nothing of its content.
_CHANGES = re.compile(
    r"(?:^|_)(?:cached?|memo|buffer|lock|rng|generator|random|seen|logs?|out|output|tmp|temp|state|epoch|workers?)(?:_|$)",
    re.IGNORECASE,
)


def fingerprint_of(dataset: Any) -> str:
    """Return a short mark of what a dataset holds; empty where that is unknown.

    >>> a, b = (torch.utils.data.TensorDataset(torch.tensor(rows)) for rows in ([1, 2, 3], [1, 2, 4]))
    >>> fingerprint_of(a) == fingerprint_of(a), fingerprint_of(a) == fingerprint_of(b), fingerprint_of([1, 2, 3])
    (True, False, '')
    """
    return mark_of(fingerprints_of(dataset))


def mark_of(fields: Mapping[str, str]) -> str:
    """Return the fingerprint of a dataset from those of its fields."""
    if set(fields) <= {""}:
        return fields.get("", "")
    return checksum_of_texts(text for name in sorted(fields) for text in (name, fields[name]))


def fingerprints_of(dataset: Any, depth: int = 0) -> dict[str, str]:
    """Return the fingerprints of a dataset by the names of its fields.

    A dataset has one of no name where it has a ``fingerprint`` (a text, or a method that gives one), or ``tensors``, or
    files that it lists as ``samples``, as torchvision does. Of any other, each attribute counts that holds tensors,
    arrays, lists of plain values or the path of a file, and what a dataset inside of it answers.
    """
    given = getattr(dataset, "fingerprint", None)
    if given is not None:
        return {"": str(given() if callable(given) else given)}
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, list | tuple) and tensors and all(isinstance(tensor, Tensor) for tensor in tensors):
        return {"": checksum_of_tensors(tensors)}
    files = _listed_files(dataset)
    if files:
        root = str(getattr(dataset, "root", "") or os.path.commonpath(files))
        return {"": checksum_of_files(files, root=root)}
    return _of_attributes(dataset, depth) if not isinstance(dataset, _PLAIN | list | tuple | dict) else {}


def _of_attributes(dataset: Any, depth: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in list(getattr(dataset, "__dict__", {}).items())[:_MOST_FIELDS]:
        inner = value if name == "dataset" or isinstance(value, Dataset) else None
        datasets = {"": inner} if inner is not None else _datasets_in(value)
        for number, one in datasets.items():
            below = fingerprints_of(one, depth + 1) if depth < _DEEPEST and one is not dataset else {}
            for key, mark in below.items():
                found[".".join(filter(None, (name, number, key)))] = mark
        if not datasets and not _CHANGES.search(name) and (mark := _mark_of_value(value)):
            found[name] = mark
    only = list(found)
    return {"": found["dataset"]} if only == ["dataset"] else found


def _datasets_in(value: Any) -> dict[str, Any]:
    """Return the datasets in a list, as that of a concatenation, by their numbers."""
    listed = isinstance(value, list | tuple) and 0 < len(value) <= _MOST_FIELDS
    if not listed or not all(isinstance(one, Dataset) for one in value):
        return {}
    return {str(number): one for number, one in enumerate(value)}


def _mark_of_value(value: Any) -> str:
    """Return the checksum of tensors, an array, plain values, or the file at a path; empty for anything else."""
    if isinstance(value, Tensor):
        return checksum_of_tensors([value]) if value.layout is torch.strided and not value.is_meta else ""
    if isinstance(value, np.ndarray):
        return _mark_of_array(value)
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        return checksum_of_files([path], root=os.path.dirname(path)) if os.path.isfile(path) else ""
    if isinstance(value, Mapping):
        marks = {str(key): _mark_of_value(item) for key, item in list(value.items())[:_MOST_FIELDS]}
        return (
            mark_of({key: mark for key, mark in marks.items() if mark} | {"length": str(len(value))})
            if any(marks.values())
            else ""
        )
    if not isinstance(value, list | tuple) or not value:
        return ""
    if all(isinstance(one, Tensor | np.ndarray) for one in value[:_MOST_FIELDS]):
        marks = {str(number): _mark_of_value(one) for number, one in enumerate(_spaced(value, _SIZED))}
        return mark_of(marks | {"length": str(len(value))})
    return _mark_of_list(value)


def _mark_of_array(value: np.ndarray[Any, Any]) -> str:
    if value.dtype.hasobject:
        return _mark_of_list(value.reshape(-1).tolist()) if value.size <= _SIZED else ""
    total = crc32(f"{value.dtype} {value.shape}".encode())
    flat = value.reshape(-1) if value.flags.c_contiguous else np.ascontiguousarray(value).reshape(-1)
    for piece in _pieces(torch.from_numpy(flat.view(np.uint8)) if flat.flags.writeable else _tensor_of(flat)):
        total = crc32(piece.numpy().data, total)
    return f"{total:08x}"


def _tensor_of(flat: np.ndarray[Any, Any]) -> Tensor:
    """Return the bytes of an array that may not be written, such as one of a mapped file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(flat.view(np.uint8))


def _mark_of_list(value: Sequence[Any]) -> str:
    """Return the checksum of a list of plain values, of the content of files that it names; of many, of some."""
    some = _spaced(value, _SIZED)
    if not all(_is_plain(item) for item in some):
        return ""
    # Data that were moved are the same data.
    named = [_without_folder(item) for item in some]
    total = crc32(repr([len(value), *named]).encode("utf-8", "surrogatepass"))
    for path in [item for item in _spaced(some, _BEGUN) if isinstance(item, str) and os.path.isfile(item)]:
        total = crc32(_content(path, _BEGINNING), total)
    return f"{total:08x}"


def _without_folder(item: Any) -> Any:
    if isinstance(item, str):
        return os.path.basename(item) if os.sep in item and os.path.exists(item) else item
    return [_without_folder(one) for one in item] if isinstance(item, list | tuple) else item


_PLAIN = str | bytes | int | float | complex | bool | None


def _is_plain(item: Any, depth: int = 0) -> bool:
    """Return whether an item is written the same in every process: what has an address in its text is not."""
    if isinstance(item, list | tuple):
        return depth < _DEEPEST and len(item) <= _SIZED and all(_is_plain(one, depth + 1) for one in item)
    return type(item) in (str, bytes, int, float, complex, bool, type(None))


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
