"""Every benchmark in turn, as docs/benchmarks.md shows them.

    python bench/run_all.py

Ratios are taken within one run of one benchmark, so a busy machine disturbs both sides alike.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = (
    ["overhead.py"],
    ["syncs.py"],
    ["startup.py"],
    ["memory.py"],
    ["data.py"],
    ["optim.py"],
)


def main() -> None:
    for words in COMMANDS:
        print(f"\n$ python bench/{' '.join(words)}", flush=True)
        subprocess.run([sys.executable, str(HERE / words[0]), *words[1:]], check=True)


if __name__ == "__main__":
    main()
