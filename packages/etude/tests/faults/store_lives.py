"""Many lives of one job whose checkpoints are on an S3 server: killed, cut off, slowed down, damaged; the end must be
bitwise identical to a run on the disk that nothing happened to.

    python -m tests.faults.store_lives --lives 40 --seed 1

The server is moto's on loopback, with a relay in front of it (see tests/object_store.py). Every life is a fork of this
process. Prints a summary as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiobotocore.session  # noqa: F401  every life needs it, and imports it once, here
import s3fs  # noqa: F401
import torch

from etude.checkpoint.storage import chaos, disk
from tests.faults.job import Variant, digest, train
from tests.faults.lives import POINTS, Reference, _end_here_at, _trap, live, reference
from tests.object_store import ObjectStore, served

VARIANT = Variant(epochs=3, save="4step")
#: What happens in a life: (kind, how many of ten lives).
KINDS = {
    "killed at a moment": 1, "killed at a call": 2, "killed at a point of a save": 2, "server gone for a while": 2,
    "server gone for good": 1, "slow server": 1, "silent server": 1,
}  # fmt: skip
DAMAGE = ("truncated", "part missing", "manifest empty", "bit flipped")


@dataclass
class Tally:
    """How many lives of each kind there were, and after how many of them the job came back."""

    lives: Counter[str] = field(default_factory=Counter)
    good: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    wrong: list[str] = field(default_factory=list)


class Job:
    """One job: lives until it is finished, each with a fault."""

    def __init__(self, server: ObjectStore, known: Reference, root: Path, dice: random.Random, number: int) -> None:
        self.server, self.known, self.dice = server, known, dice
        self.folder = root / f"job-{number}"
        self.place = f"s3://{server.bucket()}/runs/{number}"
        self.story: list[str] = []

    def life(self, kind: str) -> tuple[int, bool]:
        """One life with a fault of this ``kind``; its exit code, and whether that is the one to expect."""
        share, relay, known = self.dice.random(), self.server.relay, self.known
        number, allowed = 1 + int(share * 6), {0}
        point = self.dice.choice([one for one in POINTS if "rename" not in one and "delete" not in one])
        puts = 0

        def cut(data: bytes) -> bool:
            nonlocal puts
            puts += data.startswith(b"PUT")
            return puts >= 3 + int(share * 40) and relay.cuts == 0

        if kind.startswith("server gone"):
            relay.outage, relay.cut_at = (0.2 + 2 * share if "while" in kind else 0.0), cut
            allowed = {0} if "while" in kind else {0, 6}
        elif kind == "slow server":
            relay.delay = 0.002 + 0.02 * share
        elif kind == "silent server":
            threading.Timer(known.seconds * share, lambda: setattr(relay, "delay", None)).start()
            threading.Timer(known.seconds * share + 3, lambda: setattr(relay, "delay", 0.0)).start()

        def body() -> int:
            if kind == "killed at a call":
                disk.set_gate(_trap(max(1, int(share * known.calls)), torn=False))
            elif kind == "killed at a point of a save":
                chaos.listen(point, _end_here_at(number))
            return train(self.folder, VARIANT, place=self.place, allow_change=("attempts",)).exit_code

        moment = 0.3 + share * known.seconds * 4 if kind == "killed at a moment" else None
        code = live(body, kill_after=moment, quiet=True)
        relay.cut_at, relay.cuts, relay.delay = None, 0, 0.0
        relay.up()
        killed = kind.startswith("killed") and code == -signal.SIGKILL
        self.story.append(f"{kind} {share:.2f} {point if 'point' in kind else ''}: {code}")
        return code, killed or code in allowed

    def damage(self, how: str) -> bool:
        """Damage the newest checkpoint as ``how`` says; return False if there are not two."""
        files, folder = self.server.files, self.place.removeprefix("s3://")
        steps = sorted(path for path in files.glob(f"{folder}/step-*") if files.exists(f"{path}/manifest.json"))
        if len(steps) < 2:
            return False
        path = f"{steps[-1]}/model.safetensors"
        content = bytearray(files.cat_file(path))
        if how == "truncated":
            files.pipe_file(path, bytes(content[: self.dice.randrange(len(content))]))
        elif how == "part missing":
            files.rm_file(self.dice.choice([one for one in files.ls(steps[-1], detail=False) if "manifest" not in one]))
        elif how == "manifest empty":
            files.pipe_file(f"{steps[-1]}/manifest.json", b"")
        else:
            content[self.dice.randrange(len(content))] ^= 1 << self.dice.randrange(8)
            files.pipe_file(path, bytes(content))
        return True

    def compare(self) -> list[str]:
        """What differs from the undisturbed run."""
        reading, writing = os.pipe()

        def body() -> None:
            os.write(writing, json.dumps(digest(self.folder, self.place)).encode())

        assert live(body) == 0
        sums = json.loads(os.read(reading, 1 << 16))
        os.close(reading), os.close(writing)
        return sorted(key for key in sums.keys() | self.known.sums.keys() if sums.get(key) != self.known.sums.get(key))


def one_job(job: Job, tally: Tally, *, most: int = 4) -> None:
    """Lives of one job until it is finished; its end is compared."""
    faults: list[str] = []
    tally.jobs += 1
    for attempt in range(20):
        kind = job.dice.choices([*KINDS], [*KINDS.values()])[0] if attempt < most else "none"
        code, expected = job.life(kind)
        faults += [kind] if kind != "none" else []
        if not expected:
            tally.wrong.append(f"exit code {code} after {job.story}")
            break
        if code == 0:
            break
        how = job.dice.choice((*DAMAGE, ""))
        if how and job.damage(how):
            faults.append(f"newest checkpoint: {how}")
            job.story.append(how)
    else:
        tally.wrong.append(f"never finished: {job.story}")
    odd = [] if len(tally.wrong) else job.compare()
    if odd:
        tally.wrong.append(f"{odd} after {job.story}")
    tally.lives.update(faults)
    tally.good.update([] if tally.wrong else faults)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lives", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dice, tally = random.Random(args.seed), Tally()
    root = Path(tempfile.mkdtemp(prefix="etude-lives-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    train(root / "warm", Variant(epochs=1), resume=None)  # what torch imports on first use is imported once, here
    known, began = reference(VARIANT, root), time.monotonic()
    with served() as server:
        while sum(tally.lives.values()) < args.lives and not tally.wrong:
            one_job(Job(server, known, root, dice, tally.jobs), tally)
    if not tally.wrong:
        shutil.rmtree(root)
    summary: dict[str, Any] = {
        "lives": dict(sorted(tally.lives.items())), "good": dict(tally.good), "jobs": tally.jobs, "wrong": tally.wrong,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    print(json.dumps(summary))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
