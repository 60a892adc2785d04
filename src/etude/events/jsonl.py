"""Records as JSON lines: safe to the last line, read by everyone.

``metrics.jsonl`` holds only what training determines, so that the files of two runs with the same result are the same
bytes; what the clock says goes to ``timing.jsonl``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.events.record import TIMING_PREFIXES, Record

#: The length of a file that differs from run to run, told apart from one that training determines.
TIMING_OFFSET = "timing_offset"


class Jsonl:
    """One object per line. Knows how many bytes it wrote, so that a resume can drop what came after its checkpoint."""

    def __init__(self, path: str | Path, *, timing: bool = False) -> None:
        self.path, self.timing = Path(path), timing
        self._file = open(self.path, "ab")  # noqa: SIM115
        self._offset = self._file.seek(0, os.SEEK_END)

    def write(self, record: Record) -> None:
        values = {
            name: value for name, value in record.values.items() if name.startswith(TIMING_PREFIXES) == self.timing
        }
        if not values and self.timing:
            return
        head: dict[str, Any] = {"step": record.step, "epoch": record.epoch, "split": record.split}
        if self.timing:
            head["time"] = round(record.time, 3)
        line = json.dumps(head | {name: _plain(value) for name, value in values.items()}, ensure_ascii=False) + "\n"
        data = line.encode()
        self._file.write(data)
        self._file.flush()
        self._offset += len(data)

    def close(self) -> None:
        self._file.close()

    def state_dict(self) -> dict[str, Any]:
        """The length of the file so far, with every byte of it on the disk."""
        os.fsync(self._file.fileno())
        return {TIMING_OFFSET if self.timing else "offset": self._offset}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        offset = state.get(TIMING_OFFSET, state.get("offset", 0))
        self._offset = min(int(offset), os.fstat(self._file.fileno()).st_size)
        self._file.truncate(self._offset)
        self._file.seek(self._offset)


def _plain(value: float) -> float | str | None:
    """JSON has no word for what is not finite; Python's own ``NaN`` would break other readers."""
    return value if math.isfinite(value) else str(value)
