"""Reads, verifies and extends ``ledger.bin``: a header of 32 bytes, then 32 bytes per step.

A row holds the number of the step (counted from one, as in log lines), the norm of the gradients before clipping (NaN
without clipping or between two updates), a digest of the samples in the batch (0 if they are unknown), the loss, and a
rolling digest of the row and of all rows before it. So two equal rolling digests mean two equal histories, and the
first difference between two runs is found by bisection. Numbers are little-endian. The digests find differences and
damage; they are no protection against somebody who forges them on purpose.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from etude.errors import UserError, printable

FILE = "ledger.bin"
#: The ledgers of all ranks; the first rank has :data:`FILE`.
EVERY = "ledger*.bin"
ROW = np.dtype([("step", "<u4"), ("norm", "<f4"), ("ids", "<u8"), ("loss", "<f8"), ("digest", "<u8")])
HEADER = b"etude ledger 1\n".ljust(32, b"\0")
#: An odd number, so that it has an inverse modulo 2^64.
_FACTOR = 0x9E3779B97F4A7C15
_LONGEST = 1 << 12
_Words = np.ndarray[Any, np.dtype[np.uint64]]
Rows = np.ndarray[Any, np.dtype[np.void]]


def file_of(rank: int) -> str:
    """Return the name of a rank's ledger: each rank has its own samples and losses."""
    return FILE if rank == 0 else f"ledger-rank{rank}.bin"


def size_of(rows: int) -> int:
    """Return the size of a file with so many rows."""
    return len(HEADER) + rows * ROW.itemsize


def read(path: str | Path, rank: int = 0) -> Rows:
    """Return all rows of a ledger, or of a rank's in a run's folder; an error names the first damaged row."""
    path = Path(path, file_of(rank)) if os.path.isdir(path) else Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = "the run was made with `ledger: false` or by an older etude" if not path.exists() else error.strerror
        raise UserError(f"{printable(str(path))}: there is no ledger of steps to read ({hint})") from error
    if not data.startswith(HEADER[:13]):
        raise UserError(f"{printable(str(path))} is not a ledger of steps")
    whole = (len(data) - len(HEADER)) // ROW.itemsize  # a killed run may leave a part of a row
    rows = np.frombuffer(data, ROW, max(0, whole), len(HEADER)) if whole > 0 else np.empty(0, ROW)
    wrong = first_damaged(rows)
    if wrong is not None:
        raise UserError(f"{printable(str(path))}: row {wrong + 1} (step {rows['step'][wrong]}) is damaged")
    return rows


def first_damaged(rows: Rows) -> int | None:
    """Return the index of the first row that does not follow from the rows before it; None if all do."""
    digest, steps = 0, rows["step"].astype(np.int64)
    for start in range(0, len(rows), _LONGEST):
        block = rows[start : start + _LONGEST]
        expected = chained(block, digest)
        different = np.flatnonzero(expected != block["digest"])
        if len(different):
            return start + int(different[0])
        digest = int(expected[-1])
    jumps = np.flatnonzero(np.diff(steps) != 1)
    return int(jumps[0]) + 1 if len(jumps) else None


def made(
    first_step: int,
    losses: np.ndarray[Any, Any],
    norms: np.ndarray[Any, Any],
    ids: Sequence[Any],
    digest: int,
) -> Rows:
    """Return rows for consecutive steps. ``digest`` is that of the last row before them, 0 at the beginning."""
    rows = np.empty(len(losses), ROW)
    rows["step"] = np.arange(first_step, first_step + len(losses))
    rows["loss"], rows["ids"] = losses, digests_of(ids)
    with np.errstate(over="ignore"):  # a norm in double precision may be infinite here
        rows["norm"] = norms
    for start in range(0, len(rows), _LONGEST):
        block = rows[start : start + _LONGEST]
        block["digest"] = chained(block, digest)
        digest = int(block["digest"][-1])
    return rows


def chained(rows: Rows, digest: int) -> _Words:
    """Return the rolling digests of rows that follow one with ``digest``.

    Each is ``previous * FACTOR + mixed(row)`` modulo 2^64, computed for all rows at once.
    """
    words = np.ascontiguousarray(rows).view("<u8").reshape(len(rows), ROW.itemsize // 8)
    each = _mixed(words[:, 0] + _mixed(words[:, 1] + _mixed(words[:, 2])))
    powers, inverses = _powers()
    sums = np.cumsum(each * inverses[: len(rows)], dtype=np.uint64) + np.uint64(digest)
    return sums * powers[: len(rows)]


def digests_of(batches: Sequence[Any]) -> _Words:
    """Return a digest for each batch, given as its sample indices in their order; 0 for None."""
    table = _stacked(batches)
    if table is not None:
        return _digests_of_rows(table)
    arrays = [None if batch is None else _numbers(batch) for batch in batches]
    found = np.zeros(len(arrays), np.uint64)
    by_size: dict[int, list[int]] = {}
    for number, array in enumerate(arrays):
        if array is not None and len(array):
            by_size.setdefault(len(array), []).append(number)
    for same in by_size.values():
        found[same] = _digests_of_rows(np.stack([arrays[number] for number in same]))  # type: ignore[misc]
    return found


def _stacked(batches: Sequence[Any]) -> _Words | None:
    """Return batches that are tensors of the CPU of one size as one table; None for all others.

    A call for all of them takes a tenth of the time of one for each.
    """
    if not batches or not hasattr(batches[0], "new_tensor") or batches[0].ndim != 1 or not len(batches[0]):
        return None
    import torch

    try:
        table = torch.stack(list(batches))
    except (TypeError, RuntimeError):  # of several sizes, or one is unknown
        return None
    fits = table.dtype == torch.int64 and table.is_cpu
    return table.numpy().view(np.uint64) if fits else None


def _digests_of_rows(table: _Words) -> _Words:
    """Return the digest of each row of a table of numbers."""
    size = table.shape[1]
    found = np.empty(len(table), np.uint64)
    many = max(1, (1 << 15) // size)  # what fits into the cache of a core
    for start in range(0, len(table), many):
        block = table[start : start + many] ^ _mixed_positions(size)
        found[start : start + many] = _mixed(block).sum(axis=1, dtype=np.uint64)
    return _mixed(found + np.uint64(size))


@lru_cache(8)
def _mixed_positions(size: int) -> _Words:
    return _mixed(np.arange(size, dtype=np.uint64))


def _numbers(batch: Any) -> _Words:
    """Return the indices of a batch as numbers; any other kind by its text."""
    # A tensor of the CPU is looked at directly: the general way takes ten times as long.
    array = batch.numpy() if hasattr(batch, "numpy") else np.asarray(batch)
    if array.dtype == np.int64 and array.ndim == 1:
        found: _Words = array.view(np.uint64)
        return found
    if array.ndim == 1 and array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False).view(np.uint64)
    items: Iterable[Any] = batch
    return np.array([_number(item) for item in items], np.uint64)


def _number(item: Any) -> int:
    if isinstance(item, int):
        return item % (1 << 64)
    digest = 0xCBF29CE484222325
    for byte in repr(item).encode():
        digest = ((digest ^ byte) * 0x100000001B3) % (1 << 64)
    return digest


def _mixed(values: Any) -> _Words:
    """Spread every bit of 64-bit words over the whole word."""
    made: _Words = values + np.uint64(_FACTOR)
    shifted = made >> np.uint64(30)
    made ^= shifted
    made *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(made, np.uint64(27), out=shifted)
    made ^= shifted
    made *= np.uint64(0x94D049BB133111EB)
    np.right_shift(made, np.uint64(31), out=shifted)
    made ^= shifted
    return made


@cache
def _powers() -> tuple[_Words, _Words]:
    """Return the powers of the factor and of its inverse, from the first on."""
    inverse = pow(_FACTOR, -1, 1 << 64)
    return tuple(np.cumprod(np.full(_LONGEST, one, np.uint64), dtype=np.uint64) for one in (_FACTOR, inverse))  # type: ignore[return-value]
