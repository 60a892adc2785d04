"""Every ratio on one page, with the goal beside each, as docs/benchmarks.md shows it.

    python bench/run_all.py [NAME ...]        (for example: data optim)

Ratios are taken within one run of one benchmark, both sides in turn, so a busy machine disturbs both alike. The
benchmarks themselves (``python bench/data.py``) tell more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from _common import Ratio, page

COMMANDS = {
    "step": ["overhead.py"],
    "mmcv1": ["overhead.py", "--dialect", "mmcv1"],
    "mmengine": ["overhead.py", "--dialect", "mmengine"],
    "data": ["data.py"],
    "optim": ["optim.py"],
    "startup": ["startup.py"],
    "end to end": ["end_to_end.py"],
    "checkpoint": ["checkpoint.py", "--no-dcp", "--rounds", "5"],
    "memory": ["memory.py", "--rounds", "3"],
    "growth": ["growth.py"],
}


def measured(words: list[str]) -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratios.json"
        command = [sys.executable, str(HERE / words[0]), *words[1:], "--json", str(file)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return [Ratio(**ratio) for ratio in json.loads(file.read_text())]


def main() -> None:
    names = sys.argv[1:] or list(COMMANDS)
    ratios: dict[str, Ratio] = {}
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        for ratio in measured(COMMANDS[name]):
            ratios.setdefault(ratio.name, ratio)
    print(page(list(ratios.values())))


if __name__ == "__main__":
    main()
