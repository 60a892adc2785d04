"""Compiles ``rans.c`` once, into the user's cache, and calls it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from etude.inspection import signature_cache

UNKNOWN = "symbol {} is not one of the {} symbols of its distribution"
_SOURCE = Path(__file__).with_name("rans.c")
CUT_OFF = "the compressed bytes end too early"


@cache
def library() -> Any:
    """Return the compiled coder; None where there is no compiler, or it fails, or ``ETUDE_RANS=python``."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get("ETUDE_RANS") == "python":
        return None
    text = _SOURCE.read_bytes()
    made = Path(os.path.dirname(signature_cache.path()), f"rans-{hashlib.sha256(text).hexdigest()[:16]}.so")
    try:
        if not made.is_file():
            if compiler is None:
                return None
            made.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=made.parent) as beside:
                command = [compiler, "-O2", "-shared", "-fPIC", "-o", f"{beside}/rans.so", str(_SOURCE)]
                subprocess.run(command, check=True, capture_output=True, timeout=60)
                os.replace(f"{beside}/rans.so", made)
        found = ctypes.CDLL(str(made))
    except (OSError, subprocess.SubprocessError):
        return None
    found.encode.restype = found.decode.restype = ctypes.c_int64
    return found


class _Tables(ctypes.Structure):
    _fields_ = (
        ("values", ctypes.c_void_p), ("sizes", ctypes.c_void_p), ("offsets", ctypes.c_void_p), ("width", ctypes.c_int64)
    )  # fmt: skip


def encode(
    coder: Any,
    symbols: Sequence[int],
    indexes: Sequence[int],
    cdfs: Sequence[Sequence[int]],
    sizes: Sequence[int],
    offsets: Sequence[int],
) -> bytes:
    """Return the bytes of ``symbols``."""
    values, rows = _whole(symbols), _rows(indexes, cdfs)
    if len(values) != len(rows):
        raise ValueError(f"there are {len(values)} symbols and {len(rows)} indexes")
    tables, kept = _tables(cdfs, sizes, offsets)
    _require_places(values, rows, cdfs, kept)
    out = np.empty(4 * len(values) + 2, np.uint32)  # a symbol and its pieces have at most 52 bits
    first = coder.encode(_at(values), _at(rows), _long(len(rows)), ctypes.byref(tables), _at(out), _long(len(out)))
    del kept
    return out[first:].astype("<u4").tobytes()


def decode(
    coder: Any,
    encoded: bytes,
    indexes: Sequence[int],
    cdfs: Sequence[Sequence[int]],
    sizes: Sequence[int],
    offsets: Sequence[int],
) -> list[int]:
    """Return the symbols in ``encoded``."""
    rows = _rows(indexes, cdfs)
    tables, kept = _tables(cdfs, sizes, offsets)
    words = np.frombuffer(encoded[: len(encoded) // 4 * 4], "<u4").astype(np.uint32)
    out = np.empty(len(rows), np.int32)
    failed = coder.decode(_at(words), _long(len(words)), _at(rows), _long(len(rows)), ctypes.byref(tables), _at(out))
    del kept
    if failed:
        raise ValueError(CUT_OFF)
    found: list[int] = out.tolist()
    return found


def _rows(indexes: Sequence[int], cdfs: Sequence[Sequence[int]]) -> np.ndarray:
    rows = _whole(indexes)
    if len(rows) and not (rows.min() >= 0 and rows.max() < len(cdfs)):
        raise IndexError(f"an index is none of the {len(cdfs)} distributions")
    return rows


def _tables(
    cdfs: Sequence[Sequence[int]], sizes: Sequence[int], offsets: Sequence[int]
) -> tuple[_Tables, list[np.ndarray]]:
    """Return the distributions as the coder reads them, and what must live as long."""
    if not len(cdfs) == len(sizes) <= len(offsets) or any(
        not 2 <= size <= len(cdf) + 1 for cdf, size in zip(cdfs, sizes, strict=True)
    ):
        raise ValueError("sizes and offsets do not fit the distributions")
    values = np.zeros((len(cdfs), max(map(len, cdfs), default=0)), np.int32)
    for row, cdf in zip(values, cdfs, strict=True):
        row[: len(cdf)] = cdf
    kept = [values, _whole(sizes), _whole(offsets)]
    return _Tables(*(array.ctypes.data for array in kept), values.shape[1]), kept


def _require_places(
    values: np.ndarray, rows: np.ndarray, cdfs: Sequence[Sequence[int]], kept: Sequence[np.ndarray]
) -> None:
    """Refuse a symbol for which its distribution has neither a place nor a last symbol that stands for others."""
    _, sizes, offsets = kept
    most, shifted = sizes[rows] - 2, values.astype(np.int64) - offsets[rows]
    closed = most + 1 >= _whole([len(cdf) for cdf in cdfs])[rows]
    wrong = np.flatnonzero(closed & ((shifted < 0) | (shifted >= most)))
    if len(wrong):
        raise ValueError(UNKNOWN.format(shifted[wrong[0]], most[wrong[0]]))


def _whole(values: Sequence[int]) -> np.ndarray:
    return np.ascontiguousarray(values, np.int32)


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _long(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)
