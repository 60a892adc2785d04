"""Time the board's first list of many runs, and that of an unchanged folder.

    python bench/board_runs.py [--runs 10000]

The runs have ended in order, as most of a large folder have: each has a status, a plan, records and a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from etude.board.index import Index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        for number in range(args.runs):
            _make(root / f"sweep{number // 1000}" / f"{number:05}", number)
        index = Index(root)
        began = time.monotonic()
        index.refresh()
        first = time.monotonic() - began
        listed = len(index.runs()["runs"])
        began = time.monotonic()
        while len(index.runs()["runs"]) < args.runs or any(one["state"] == "unknown" for one in index.runs()["runs"]):
            index.refresh()
        whole = time.monotonic() - began + first
        began = time.monotonic()
        index.refresh()
        again = time.monotonic() - began
    print(
        f"{args.runs} runs: first list of {listed} after {first:.2f} s, all read after {whole:.2f} s, again {again:.2f} s"
    )


def _make(folder: Path, number: int) -> None:
    (folder / "checkpoints" / "step-000000100").mkdir(parents=True)
    (folder / "plan.yaml").write_text("model: {type: MLP}\n")
    (folder / "metrics.jsonl").write_text('{"step": 100, "epoch": 1, "split": "val", "loss": 0.5}\n' * 20)
    (folder / "timing.jsonl").write_text('{"step": 100, "epoch": 1, "split": "train", "time": 1795118105.4}\n' * 20)
    plan = {f"section{key}.value": key for key in range(40)} | {"optim.lr": 0.001 * (number % 50)}
    status = {
        "state": "finished", "pid": 1, "host": "h", "since": 1.79e9, "seen": 1.79e9, "began": 1.79e9 + number,
        "seconds": 12.5, "total": 100, "step": 100, "dialect": "native", "plan": plan, "time": {"data": 1.0},
        "last": {"val/loss": 0.5}, "best": {"val/loss": [0.5, 100]}, "warnings": [],
    }  # fmt: skip
    (folder / "status.json").write_text(json.dumps(status))


if __name__ == "__main__":
    main()
