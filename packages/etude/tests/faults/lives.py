"""Many lives of one job: each is killed at a random moment and the next goes on; the end must be the same bits.

    python -m tests.faults.lives --kills 40 --seed 1

torch is imported and used once, with one thread; every life is a fork of this process. Prints one line per job and a summary as JSON.
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
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from etude.checkpoint.storage import chaos, disk
from tests.faults.job import VARIANTS, Variant, digest, train

KINDS = ("moment", "slow write", "call", "torn call", "step", "point")
POINTS = ("save.begin", "save.before_manifest", "save.before_rename", "save.done", "prune.before_delete")


def live(body: Callable[[], Any], *, kill_after: float | None = None, quiet: bool = False) -> int:
    """``body`` in a fork; its exit code (what it returns, or that of its error), negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = body() or 0
        except BaseException as error:
            code = getattr(error, "exit_code", 1)
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            if code == 1 and not quiet:
                traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if kill_after is not None:
        _kill_later(pid, kill_after)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _kill_later(pid: int, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)


@dataclass
class Doom:
    """How one life ends. ``share`` of the time, the calls, the steps that a whole life has."""

    kind: str
    share: float
    point: str = ""

    def prepare(self, calls: int) -> None:
        """In the child: lay the trap."""
        if self.kind == "slow write":
            disk.set_gate(lambda call, path, size: time.sleep(0.003))
        elif self.kind in ("call", "torn call"):
            disk.set_gate(_trap(max(1, int(self.share * calls)), torn=self.kind == "torn call"))
        elif self.kind == "point":
            chaos.listen(self.point, _end_here_at(1 + int(self.share * 6)))

    def options(self, steps: int) -> dict[str, Any]:
        return {"chaos": f"kill@step={max(1, int(self.share * steps))}"} if self.kind == "step" else {}

    def delay(self, seconds: float) -> float | None:
        return {"moment": self.share * seconds, "slow write": self.share * seconds * 2}.get(self.kind)


def _trap(number: int, *, torn: bool) -> disk.Gate:
    count = 0

    def gate(call: str, path: str, size: int) -> None:
        nonlocal count
        count += 1
        if count >= number and (not torn or call == "write"):
            if torn and size > 1:
                with open(path, "ab") as file:
                    file.write(b"\0" * (size // 2))
            os.kill(os.getpid(), signal.SIGKILL)

    return gate


def _end_here_at(number: int) -> Callable[..., None]:
    count = 0

    def listener(**facts: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


@dataclass
class Reference:
    """The undisturbed run: what it leaves, how long it takes, how many calls it makes."""

    sums: dict[str, str]
    seconds: float
    calls: int
    steps: int


def reference(variant: Variant, root: Path) -> Reference:
    folder = root / "reference"
    reading, writing = os.pipe()

    def body() -> None:
        count = 0

        def gate(call: str, path: str, size: int) -> None:
            nonlocal count
            count += 1

        disk.set_gate(gate)
        run = train(folder, variant, resume=None)
        os.write(writing, json.dumps([count, run.step]).encode())

    began = time.monotonic()
    assert live(body) == 0
    seconds = time.monotonic() - began
    calls, steps = json.loads(os.read(reading, 100))
    os.close(reading), os.close(writing)
    return Reference(digest(folder), seconds, calls, steps)


@dataclass
class Tally:
    """What happened in all lives."""

    kills: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.kills.values())


def one_job(name: str, known: Reference, root: Path, dice: random.Random, tally: Tally, *, most: int = 6) -> None:
    """Lives of one job until it is finished; its end is compared."""
    variant, folder = VARIANTS[name], root / f"job-{tally.jobs}"
    tally.jobs += 1
    story: list[str] = []
    deaths = 0
    for _ in range(60):
        doom = Doom(dice.choice(KINDS), dice.random(), dice.choice(POINTS)) if deaths < most else Doom("none", 1.0)
        workers = dice.choice((0, 2, 4)) if name == "workers" else None

        def body(doom: Doom = doom, workers: int | None = workers) -> None:
            doom.prepare(known.calls)
            train(folder, variant, workers=workers, allow_change=("attempts",), **doom.options(known.steps))

        code = live(body, kill_after=doom.delay(known.seconds))
        story.append(f"{doom.kind} {doom.share:.2f} {code}")
        if code == -signal.SIGKILL:
            deaths += 1
            tally.kills[doom.kind] += 1
        elif code != 0:
            tally.wrong.append(f"{name}: exit {code} after {story}")
            return
        elif doom.kind == "none" or dice.random() < 0.5:
            break
    sums = digest(folder)
    odd = sorted(key for key in sums.keys() | known.sums.keys() if sums.get(key) != known.sums.get(key))
    if odd:
        tally.wrong.append(f"{name}: {odd} after {story}")
    else:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--most", type=int, default=6, help="kills of one job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    dice, tally = random.Random(args.seed), Tally()
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    root = Path(tempfile.mkdtemp(prefix="etude-lives-", dir=base))
    names = args.variants.split(",")
    train(root / "warm", Variant(epochs=1), resume=None)  # what torch imports on first use is imported once, here
    known = {name: reference(VARIANTS[name], root / name.replace(" ", "-")) for name in names}
    began = time.monotonic()
    # Which kinds have killed by then depends on how fast the machine is: go on until each has.
    unmet = lambda: tally.total < args.kills or len(tally.kills) < len(KINDS) or tally.jobs < len(names)  # noqa: E731
    while unmet() and not tally.wrong:
        name = names[tally.jobs % len(names)]
        one_job(name, known[name], root, dice, tally, most=args.most)
    if not tally.wrong:
        shutil.rmtree(root)
    summary = {
        "kills": tally.total, "by kind": dict(tally.kills), "jobs": tally.jobs, "wrong": tally.wrong,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    print(json.dumps(summary))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
