"""Every ratio on one page, with the goal beside each, as docs/benchmarks.md shows it.

    python bench/run_all.py [NAME ...]        (for example: data optim; compile is only measured by name)

Ratios are taken within one run of one benchmark, both sides in turn, so a busy machine disturbs both alike. The
benchmarks themselves (``python bench/data.py``) tell more. The last line says how long it took and how busy the machine
was. A benchmark that fails is named, and the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from _common import Ratio, page

COMMANDS = {
    "step": ["overhead.py", "--rounds", "5"],
    "mmcv1": ["overhead.py", "--dialect", "mmcv1", "--rounds", "5"],
    "mmengine": ["overhead.py", "--dialect", "mmengine", "--rounds", "5"],
    "data": ["data.py", "--rounds", "3", "--seconds", "0.3"],
    "optim": ["optim.py"],
    "startup": ["startup.py", "--rounds", "3"],
    "end to end": ["end_to_end.py", "--rounds", "2"],
    "checkpoint": ["checkpoint.py", "--no-dcp", "--rounds", "5"],
    "memory": ["memory.py", "--rounds", "3"],
    "growth": ["growth.py"],
    "compile": ["compile.py"],
}


def measured(words: list[str]) -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratios.json"
        command = [sys.executable, str(HERE / words[0]), *words[1:], "--json", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return [Ratio(**ratio) for ratio in json.loads(file.read_text())]


def main() -> None:
    names = sys.argv[1:] or [name for name in COMMANDS if name != "compile"]
    ratios: dict[str, Ratio] = {}
    failed, begin = [], time.perf_counter()
    for name in names:
        since = time.perf_counter()
        try:
            for ratio in measured(COMMANDS[name]):
                ratios.setdefault(ratio.name, ratio)
        except subprocess.CalledProcessError as error:
            failed.append(f"{name} failed with exit code {error.returncode}")
        print(f"{name}: {time.perf_counter() - since:.0f} s", file=sys.stderr, flush=True)
    print(page(list(ratios.values())))
    minutes, (_, _, load) = (time.perf_counter() - begin) / 60, os.getloadavg()
    print("\n".join(["", *failed, f"{minutes:.1f} minutes, load {load:.1f} on {os.cpu_count()} cores"]))
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
