"""Reads how busy the machine is: CPU, memory, disk, and GPUs where there are any."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

_PAUSE = 10.0


class System:
    """``system/cpu_percent`` (of all cores, since the last reading), memory of this process, of the machine, GPUs.

    With a ``folder``, also how full its disk is.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._before = self._clocks()
        self._read_at = float("-inf")

    def is_due(self) -> bool:
        return time.monotonic() - self._read_at >= _PAUSE

    def read(self) -> dict[str, float]:
        self._read_at = time.monotonic()
        values: dict[str, float] = {}
        busy, whole = self._clocks()
        if whole > self._before[1]:
            values["system/cpu_percent"] = 100 * (busy - self._before[0]) / (whole - self._before[1])
        self._before = busy, whole
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            values["system/process_megabytes"] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        with suppress(OSError, ValueError, KeyError):
            lines = Path("/proc/meminfo").read_text().splitlines()
            facts = {line.split(":")[0]: int(line.split()[1]) for line in lines}
            values["system/memory_percent"] = 100 * (1 - facts["MemAvailable"] / facts["MemTotal"])
        if self._folder is not None:
            with suppress(OSError):
                disk = shutil.disk_usage(self._folder)
                values["system/disk_percent"] = 100 * disk.used / disk.total
        return values | _gpus()

    @staticmethod
    def _clocks() -> tuple[float, float]:
        """Return the busy and the whole time of all cores."""
        with suppress(OSError, ValueError, IndexError):
            # The later columns, of guests, are counted in the first two already.
            times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
            return sum(times) - times[3] - times[4], float(sum(times))  # without idle and waiting for disks
        return 0.0, 0.0


def _gpus() -> dict[str, float]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    values: dict[str, float] = {}
    for index in range(torch.cuda.device_count()):
        values[f"system/gpu{index}_megabytes"] = torch.cuda.memory_allocated(index) / 1e6
        with suppress(Exception):  # nvml may be missing or refuse
            values[f"system/gpu{index}_percent"] = float(torch.cuda.utilization(index))
    return values
