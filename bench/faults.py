"""Kill a job hundreds of times and hold every end against the undisturbed one.

    python bench/faults.py --kills 500 [--seed 0]

The job has everything that makes a resume hard (see tests/faults/job.py) in eight variants; kills come at random
moments, inside throttled writes, at the n-th file-system call, in the middle of a write, at a step, and at the points
around renaming and deleting.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    command = [sys.executable, "-m", "tests.faults.lives", "--kills", str(args.kills), "--seed", str(args.seed)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"{'killed':20} {'lives':>6}")
    for kind, count in sorted(result["by kind"].items()):
        print(f"{kind:20} {count:6}")
    print(f"{'in all':20} {result['kills']:6}\n")
    print(f"{result['jobs']} jobs finished in {result['seconds']:.0f} s; other bits in {len(result['wrong'])} of them")
    for story in result["wrong"]:
        print(f"  {story}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
