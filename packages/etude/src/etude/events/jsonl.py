"""Writes records as JSON lines; a crash loses at most the last line.

``metrics.jsonl`` holds only what training determines, so that the files of two runs with the same result are the same
bytes; what the clock says goes to ``timing.jsonl``.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from etude.errors import ConfigError
from etude.events.record import TIMING_PREFIXES, Record
from etude.events.system import System

#: Bytes of lines that are kept while a disk is full; beyond that the file is given up.
MOST_KEPT = 8 << 20
#: The length of a file that differs from run to run, distinguished from one that training determines.
TIMING_OFFSET = "timing_offset"


class Jsonl:
    """Writes one object per line, and counts the bytes, so that a resume can drop what came after its checkpoint.

    Every ten seconds a line of timings says how busy the machine is.

    Lines that the disk does not take are kept in memory, up to :data:`MOST_KEPT` bytes, and written when it does again.
    """

    def __init__(self, path: str | Path, *, timing: bool = False) -> None:
        self.path, self.timing = Path(path), timing
        # Without O_APPEND: with it, Linux appends whatever place `pwrite` is given.
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._offset = os.lseek(self._fd, 0, os.SEEK_END)
        self._kept = b""
        self._system = System(self.path.parent) if timing else None

    def write(self, record: Record) -> None:
        values = {
            name: value for name, value in record.values.items() if name.startswith(TIMING_PREFIXES) == self.timing
        }
        if not values and (self.timing or record.values or record.media):
            return
        if self._system is not None and self._system.is_due():
            values |= self._system.read()
        head: dict[str, Any] = {"step": record.step, "epoch": record.epoch, "split": record.split}
        if self.timing:
            head["time"] = round(record.time, 3)
        line = json.dumps(head | {name: _plain(value) for name, value in values.items()}, ensure_ascii=False) + "\n"
        waiting = bool(self._kept)
        self._kept += line.encode()
        try:
            self._drain()
        except OSError as error:
            if len(self._kept) > MOST_KEPT:
                raise
            if not waiting:
                text = f"{self.path.name} cannot be written ({error.strerror or error}); lines are kept in memory"
                warnings.warn(text, stacklevel=2)

    def _drain(self) -> None:
        """Write what is kept: all of it, or nothing that a reader would see."""
        try:
            rest = memoryview(self._kept)
            while rest:
                rest = rest[os.pwrite(self._fd, rest, self._offset + len(self._kept) - len(rest)) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, self._offset)
            raise
        self._offset += len(self._kept)
        self._kept = b""

    def close(self) -> None:
        if self._fd >= 0:
            fd = self._fd
            try:
                self._drain()
            except OSError as error:
                lines = self._kept.count(b"\n")
                warnings.warn(f"{self.path.name}: the last {lines} lines are lost ({error.strerror})", stacklevel=2)
            self._fd = -1
            os.close(fd)

    def sync(self) -> None:
        """Sync every byte so far to the disk."""
        with suppress(OSError):
            os.fsync(self._fd)

    def state_dict(self) -> dict[str, Any]:
        """Return the length of the file so far, and the lines that are still to be written."""
        kept = {"kept": self._kept.decode()} if self._kept else {}
        return {TIMING_OFFSET if self.timing else "offset": self._offset, **kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        offset = state.get(TIMING_OFFSET, state.get("offset", 0))
        self._offset = min(int(offset), os.fstat(self._fd).st_size)
        os.ftruncate(self._fd, self._offset)
        self._kept = str(state.get("kept", "")).encode()


class JsonLines(Jsonl):
    """A further file of JSON lines in the run's folder, with the values of training (or the timings)."""

    def __init__(self, folder: str | Path, name: str = "records.jsonl", timing: bool = False) -> None:
        if Path(name).name != name or name in ("metrics.jsonl", "timing.jsonl"):
            raise ConfigError(f"jsonl: {name!r} is not a file name that is free")
        super().__init__(Path(folder) / name, timing=timing)


def _plain(value: float) -> float | str | None:
    """Replace values that are not finite by a word: JSON has none for them, and Python's ``NaN`` would break other
    readers."""
    return value if math.isfinite(value) else str(value)
