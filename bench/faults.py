"""Kill a job hundreds of times and hold every end against the undisturbed one.

    python bench/faults.py --kills 500 [--seed 0]
    python bench/faults.py --nproc 2 --kills 50
    python bench/faults.py --security [--kills 20]
    python bench/faults.py --s3 [--kills 40]

The job has everything that makes a resume hard (see tests/faults/job.py) in eight variants; kills come at random
moments, inside throttled writes, at the n-th file-system call, in the middle of a write, at a step, and at the points
around renaming and deleting.

With ``--security`` it counts the sockets that jobs of two processes listen on while they train, are killed and start
again; overwrites what is in the store of a job with pickles and rubbish; kills launchers at random moments, and counts
those that leave nobody; and gives every hostile input and file of tests/security/hostile.py to the command that reads it.

With ``--s3`` the checkpoints are on moto's S3 server on loopback (extra ``test``): lives are killed, the server is gone,
slow or silent, and the newest checkpoint is damaged between two lives (see tests/faults/store_lives.py).

With ``--nproc`` a job of several processes (see tests/dist/job.py) loses a random rank at a random step, and restarts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The tests of all packages are one namespace, `tests`.
sys.path[:0] = [str(ROOT), *map(str, ROOT.glob("packages/*"))]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:5], os.environ.get("PYTHONPATH", "")])
#: Of the job in tests/dist/project.py: four epochs of five batches.
STEPS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, help="500; 40 faults with --s3; 20 with --security")
    parser.add_argument("--s3", action="store_true", help="a job whose checkpoints are on an S3 server")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nproc", type=int, default=1, help="kill ranks of a job of so many processes")
    parser.add_argument("--security", action="store_true", help="listeners, stores, killed launchers, hostile files")
    args = parser.parse_args()
    if args.security:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # of the stranger whose connections break
        from tests.dist import security
        from tests.security import hostile

        print(f"{'made to break it':52} {'held':>10}")
        return security.report(args.kills or 20, args.seed) | hostile.main()
    if args.s3:
        return disturb_store(args.kills or 40, args.seed)
    kills = args.kills or 500
    if args.nproc > 1:
        return kill_ranks(args.nproc, kills, args.seed)
    command = [sys.executable, "-m", "tests.faults.lives", "--kills", str(kills), "--seed", str(args.seed)]
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


def disturb_store(lives: int, seed: int) -> int:
    """Give a job on an object store ``lives`` faults; count those that it came back from, bitwise identical."""
    command = [sys.executable, "-m", "tests.faults.store_lives", "--lives", str(lives), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"{'fault':38} bitwise identical afterwards")
    for kind, count in result["lives"].items():
        print(f"{kind:38} {result['good'].get(kind, 0)} of {count}")
    total = sum(result["lives"].values())
    print(f"{'in all':38} {sum(result['good'].values())} of {total}\n")
    print(f"{result['jobs']} jobs in {result['seconds']:.0f} s")
    for story in result["wrong"]:
        print(f"  {story}")
    return done.returncode


def kill_ranks(nproc: int, kills: int, seed: int) -> int:
    """Kill a random rank at a random step, ``kills`` times; count the jobs that do not end in the same bits."""
    from tests.dist import project
    from tests.dist.conftest import Jobs

    draw, began, wrong = random.Random(seed), time.monotonic(), []
    with tempfile.TemporaryDirectory() as made:
        folder = project.make(Path(made))
        jobs = Jobs(folder / "log.txt")
        try:
            jobs.run("train", "config.yaml", "--folder", "calm", cwd=folder, nproc=nproc)
            for number in range(kills):
                chaos = f"kill@step={draw.randint(1, STEPS - 1)},rank={draw.randrange(nproc)}"
                words = ["train", "config.yaml", "--folder", f"{number}", "--chaos", chaos]
                job = jobs.start(*words, cwd=folder, nproc=nproc, max_restarts=2)
                code, was_killed = job.wait(), "lost" in job.output
                if code or not was_killed or not project.same_bits(folder / "calm", folder / f"{number}"):
                    wrong.append(f"{chaos}: exit code {code}, killed: {was_killed}")
        finally:
            jobs.close()
    seconds = time.monotonic() - began
    print(f"{kills} jobs of {nproc} processes in {seconds:.0f} s; not recovered, or other bits: {len(wrong)}")
    for story in wrong:
        print(f"  {story}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
