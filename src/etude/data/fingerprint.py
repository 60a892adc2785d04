"""What data are known by, so that a resumed run does not go on with other ones unnoticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

#: Of more than so many bytes only evenly spaced pieces are looked at.
_WHOLE = 1 << 28
_PIECES = 256


def fingerprint_of(dataset: Any) -> str:
    """What a dataset answers to ``fingerprint`` (a text, or a method that gives one); of one that wraps another, what
    that answers; of tensors in memory, a checksum; else nothing.

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
    inner = getattr(dataset, "dataset", None)
    return fingerprint_of(inner) if inner is not None and inner is not dataset else ""


def checksum_of_tensors(tensors: Iterable[Tensor]) -> str:
    """A short word that other numbers, shapes or types would change."""
    total = 0
    for tensor in tensors:
        total = crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), total)
        for piece in _pieces(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)):
            total = crc32(piece.numpy().data, total)
    return f"{total:08x}"


def checksum_of_texts(texts: Iterable[str]) -> str:
    """The same for names."""
    total = 0
    for text in texts:
        total = crc32(text.encode("utf-8", "surrogatepass") + b"\0", total)
    return f"{total:08x}"


def _pieces(content: Tensor) -> Iterable[Tensor]:
    if len(content) <= _WHOLE:
        return (content,)
    size, stride = _WHOLE // _PIECES, len(content) // _PIECES
    return (content[begin : begin + size] for begin in range(0, len(content), stride))
