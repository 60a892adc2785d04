"""Reads JSON lines while another process may be writing them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

#: A longer line is not a record; it is skipped without being kept in memory.
LONGEST = 1 << 20
#: Larger files are read in evenly spaced blocks instead of whole.
WHOLE = 48 << 20
#: Pieces that are read of a large file, and about how many lines of each.
BLOCKS, LINES = 2000, 8


class Lines:
    """Records of one file. Call :meth:`read` again for what was added since.

    ``restarted`` tells that the file was replaced or cut (a resume does that), so that earlier records are void.
    ``sampled`` tells that the file is too large to be read whole, so that only evenly spaced records were given.
    """

    def __init__(self, path: Path, *, whole: int = WHOLE) -> None:
        self.path, self.whole = path, whole
        self.offset = self.bad = 0
        self.restarted = self.sampled = False
        self._tail = b""
        self._end: int | None = None

    def seek(self, key: str, low: float, high: float) -> None:
        """Let :meth:`read` give the rows with ``key`` from ``low`` to ``high``; rows must be in its order."""
        try:
            with self.path.open("rb") as file:
                self.offset = _bisect(file, key, low)
                self._end = _bisect(file, key, high + 1)
                file.seek(max(0, self.offset - 64))
                self._tail = file.read(min(64, self.offset))
        except OSError:
            return

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the records after those of the last call. A line that is cut off is left for the next call."""
        self.restarted = False
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            size = file.seek(0, 2) if self._end is None else self._end
            if not self._is_continued(file, size):
                self.restarted, self.offset, self.bad, self.sampled = self.offset > 0, 0, 0, False
            if size - self.offset > self.whole:
                self.sampled = True
                end = _line_start(file, size)
                yield from self._sample(file, self.offset, end)
                self.offset = end
            yield from self._rest(file)
            start = max(0, self.offset - 64)
            file.seek(start)
            self._tail = file.read(self.offset - start)

    def _is_continued(self, file: BinaryIO, size: int) -> bool:
        if size < self.offset:
            return False
        # A resume cuts the file and writes on: then other bytes stand before the place.
        file.seek(max(0, self.offset - 64))
        return file.read(min(64, self.offset)) == self._tail

    def _rest(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        file.seek(self.offset)
        while (self._end is None or self.offset < self._end) and (line := file.readline(LONGEST)):
            ended = line.endswith(b"\n")
            record = decode(line)
            if not ended and len(line) < LONGEST and record is None:
                return  # being written
            self.offset += len(line)
            if record is not None:
                yield record
            elif line.strip():
                self.bad += 1

    def _sample(self, file: BinaryIO, start: int, end: int) -> Iterator[dict[str, Any]]:
        length = min(max(1024, LINES * _line_length(file)), (end - start) // BLOCKS)
        for number in range(BLOCKS):
            file.seek(start + (end - start) * number // BLOCKS)
            lines = file.read(length).split(b"\n")
            for line in lines[1 if number else 0 : -1]:
                record = decode(line)
                if record is not None:
                    yield record


def _line_start(file: BinaryIO, size: int) -> int:
    """Return where the last 64 kB begin, at the beginning of a line."""
    file.seek(max(0, size - (64 << 10)))
    file.readline(LONGEST)
    return min(file.tell(), size)


def _bisect(file: BinaryIO, key: str, step: float) -> int:
    """Return where the first line begins whose step is not less than ``step``."""
    low, high = 0, file.seek(0, 2)
    while low < high:
        middle = (low + high) // 2
        start, found = _step_after(file, middle, key)
        if found is None or found >= step:
            high = middle
        else:
            low = max(start, middle + 1)
    file.seek(max(0, low - 1))
    if low:
        file.readline(LONGEST)
    return file.tell()


def _step_after(file: BinaryIO, offset: int, key: str) -> tuple[int, float | None]:
    """Return the step of the first readable line that begins at ``offset`` or later, and where it begins."""
    # From the byte before: a line that begins at `offset` itself counts.
    file.seek(max(0, offset - 1))
    if offset:
        file.readline(LONGEST)
    for _ in range(100):
        start = file.tell()
        line = file.readline(LONGEST)
        if not line:
            return start, None
        record = decode(line)
        step = number(record.get(key)) if record is not None else None
        if step is not None:
            return start, step
    return start, None


def _line_length(file: BinaryIO) -> int:
    """Return the mean length of the first lines."""
    file.seek(0)
    head = file.read(64 << 10)
    return len(head) // max(1, head.count(b"\n"))


def decode(line: bytes) -> dict[str, Any] | None:
    """Return the object of one line, or None for anything else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def number(value: Any) -> float | None:
    """Return a recorded value as a float, ``"nan"`` and ``"inf"`` too; None for what is no number.

    >>> number(3), number("nan"), number("-inf"), number("abc"), number(True)
    (3.0, nan, -inf, None, None)
    """
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str) and value.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(value)
    return None
