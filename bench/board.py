"""Time to the first answer of the board for 1,000 runs and for a run of 1,000,000 points, and its memory.

python bench/board.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

CODE = "import sys; from etude.cli import main; sys.exit(main(sys.argv[1:]))"


def make_runs(root: Path, count: int, steps: int) -> None:
    for number in range(count):
        folder = root / f"run-{number:04}"
        folder.mkdir(parents=True)
        rows = ({"step": s, "epoch": 0, "split": "train", "loss": 1 / s, "lr": 0.1} for s in range(1, steps + 1))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        best = {"val/accuracy": [number / count, steps]}
        status = {"state": "finished", "step": steps, "plan": {"optim.lr": number % 5}, "best": best, "last": {}}
        (folder / "status.json").write_text(json.dumps(status))


def measure(root: Path, run: str) -> tuple[float, float, float, float]:
    """Return seconds until it listens, until the list is there, until the curves are there, and its megabytes."""
    began = time.perf_counter()
    words = [sys.executable, "-c", CODE, "board", str(root), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://[^/\s]+", process.stdout.readline())[0]
        up = time.perf_counter()
        with httpx.Client(base_url=address, timeout=120) as client:
            client.get("/api/runs").raise_for_status()
            listed = time.perf_counter()
            client.get("/api/curves", params={"run": run}).raise_for_status()
            drawn = time.perf_counter()
        memory = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024
    finally:
        process.terminate()
        process.wait()
    return up - began, listed - up, drawn - listed, memory


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        many, long = Path(folder) / "many", Path(folder) / "long"
        make_runs(many, 1000, 50)
        make_runs(long, 1, 500_000)  # two values each: a million points
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", CODE, "runs", str(many)], stdout=subprocess.DEVNULL, check=True)
        print(f"etude runs, 1,000 runs: {time.perf_counter() - began:.2f} s")
        for what, root in (("1,000 runs", many), ("1,000,000 points", long)):
            up, listed, drawn, memory = measure(root, "run-0000")
            print(f"{what:<17} listens {up:.2f} s, list {listed:.2f} s, curves {drawn:.2f} s, {memory:.0f} MB")


if __name__ == "__main__":
    main()
