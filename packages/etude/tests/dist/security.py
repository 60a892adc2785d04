"""The table of ``bench/faults.py --security``: who could come in to a job, and who is left when its launcher is killed."""

from __future__ import annotations

import os
import pickle
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from torch.distributed import TCPStore

from tests import zygote
from tests.dist import doors, project
from tests.dist.conftest import Job, Jobs, descendants

#: Seconds, and far more than a process needs to end.
PATIENCE = 60.0
WORDS = ("train", "config.yaml", "-q", "--folder")


class Payload:
    """A pickle that makes a folder where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def write_into_store(job: Job, port: int, value: bytes) -> set[str]:
    """Overwrite every key of a job's store again and again until the job ends; return the keys."""
    stranger, seen, deadline = None, set(), time.monotonic() + 300
    while job.jobs.answers.empty() and time.monotonic() < deadline:
        try:
            stranger = stranger or TCPStore(
                "127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5)
            )
            keys = stranger.list_keys() if hasattr(stranger, "list_keys") else []
            for key in {*keys, "torch.rendezvous.etude-0", "torch.rendezvous.etude", "MASTER_ADDR"}:
                stranger.set(key, value)
                seen.add(key)
        except RuntimeError:
            stranger = None
            time.sleep(0.01)
    return seen


def start(folder: Path, name: str, epochs: int = 1) -> zygote.Child:
    words = ("train", "config.yaml", "--folder", name, "--nproc", "2", f"train.epochs={epochs}")
    return zygote.start("-m", "etude", *words, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})


def kill_when(child: zygote.Child, moment) -> set[int]:
    """Kill the launcher at a moment; return everything that it ever had below it."""
    below: set[int] = set()
    deadline = time.monotonic() + 300
    while child.poll() is None and time.monotonic() < deadline:
        below.update(descendants(child.pid))
        if moment(below):
            break
        time.sleep(0.002)
    below.update(descendants(child.pid))
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    return below


def left(pids: set[int]) -> list[int]:
    """Those that are still there when they have had time to end; they are ended then."""
    deadline = time.monotonic() + PATIENCE
    while (there := [pid for pid in pids if _is_there(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in there:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return there


def status(run: Path) -> str:
    with suppress(OSError):
        return (run / "status.json").read_text()
    return ""


def when_finished(run: Path, delay: float):
    """A moment: ``delay`` seconds after the run has said that it is finished, when its ranks are about to end."""
    ended: list[float] = []

    def moment(below: set[int]) -> bool:
        if not ended and '"finished"' in status(run):
            ended.append(time.monotonic())
        return bool(ended) and time.monotonic() - ended[0] >= delay

    return moment


def after(seconds: float):
    """A moment: so many seconds after the ranks came."""
    came: list[float] = []

    def moment(below: set[int]) -> bool:
        if len(below) >= 3 and not came:
            came.append(time.monotonic())
        return bool(came) and time.monotonic() - came[0] > seconds

    return moment


def _is_there(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextmanager
def _jobs(folder: Path) -> Iterator[Jobs]:
    jobs = Jobs(folder / "log.txt")
    try:
        yield jobs
    finally:
        jobs.close()


def report(kills: int, seed: int) -> int:
    """Print the table; return 1 if anything fell through."""
    draw, wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as made:
        folder = project.make(Path(made))
        with _jobs(folder) as jobs:
            print(f"{'job of two processes':34} {'listeners':>9} {'beyond this machine or user':>28}")
            for name, more in (
                ("ddp", ()),
                ("fsdp", ("+parallel.strategy=fsdp",)),
                ("ddp, a rank is killed", ("--chaos", "kill@step=11,rank=1")),
            ):
                job = jobs.start(*WORDS, name, *more, cwd=folder, max_restarts=1)
                seen = doors.during(job, jobs.process.pid)
                wide = [door for door in seen if not door.is_narrow]
                wrong += len(wide) + bool(job.wait())
                print(f"{name:34} {len(seen):9} {len(wide):28}")
                for door in sorted(wide, key=str):
                    print(f"    {door.kind} {door.where}")
            run = 0
            for number in range(10):
                mark = folder / f"run-{number}"
                value = pickle.dumps(Payload(mark)) if number % 2 else draw.randbytes(1 << draw.randrange(14))
                port = 20_000 + draw.randrange(10_000)
                words = (*WORDS, f"store-{number}", "+parallel.strategy=fsdp")
                job = jobs.start(*words, cwd=folder, endpoint=f"localhost:{port}", hang_timeout=10.0)
                write_into_store(job, port, value)
                run += mark.exists() or job.wait() not in (0, 2, 8) or "Traceback" in job.output
            print(
                f"\n{'stores filled by a stranger':34} {10 - run} of 10 ended well or with a message, and ran nothing"
            )
        missed = 0
        for number in range(kills):
            run_folder = folder / f"kill-{number}"
            moment = when_finished(run_folder, draw.random() / 4) if number % 2 else after(draw.random() * 3)
            missed += bool(left(kill_when(start(folder, run_folder.name), moment)))
        print(f"{'launchers killed':34} {kills - missed} of {kills} left nobody")
    return int(bool(wrong + run + missed))
