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
    return zygote.start("-m", "etude", *words, cwd=folder, env=_environment())


def _environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def kill_when(child: zygote.Child, moment) -> dict[int, str]:
    """Kill the launcher at a moment; return everything that it ever had below it, and when each of these was born."""
    below: dict[int, str] = {}
    deadline = time.monotonic() + 300
    while child.poll() is None and time.monotonic() < deadline:
        below |= _born(descendants(child.pid))
        if moment(set(below)):
            break
        time.sleep(0.002)
    below |= _born(descendants(child.pid))
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    return below


def left(processes: dict[int, str]) -> list[int]:
    """Those that are still there when they have had time to end; they are ended then.

    On a busy machine the number of a process that has ended soon belongs to another one, which was born later.
    """
    deadline = time.monotonic() + PATIENCE
    while (there := [pid for pid, born in processes.items() if _is_there(pid, born)]) and time.monotonic() < deadline:
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


def _is_there(pid: int, born: str) -> bool:
    found = _stat(pid)
    return bool(found) and found[0] != "Z" and found[19] == born


def _born(pids: list[int]) -> dict[int, str]:
    return {pid: found[19] for pid in pids if (found := _stat(pid))}


def _stat(pid: int) -> list[str]:
    """What the kernel says about a process after its name: state, parent, …, at 19 the tick at which it was born."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


@contextmanager
def _jobs(folder: Path) -> Iterator[Jobs]:
    jobs = Jobs(folder / "log.txt")
    try:
        yield jobs
    finally:
        jobs.close()


#: What makes a job of two processes, each with more words of the command.
LISTENING: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    "ddp": ((), {}),
    "fsdp": (("+parallel.strategy=fsdp",), {}),
    "ddp, a rank is killed and started again": (("--chaos", "kill@step=11,rank=1"), {"max_restarts": 1}),
}
SCRIPT = """
import time, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
time.sleep(2)
dist.destroy_process_group()
"""
#: Seconds after which no further launcher is killed.
LONGEST = 300.0


def report(kills: int, seed: int) -> int:
    """Print how many of each kind held; return 1 if anything fell through."""
    draw, wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as made:
        folder = project.make(Path(made))
        with _jobs(folder) as jobs:
            for name, (words, named) in LISTENING.items():
                job = jobs.start(*WORDS, name, *words, cwd=folder, **named)
                seen = doors.during(job, jobs.process.pid)
                wrong += bool(job.wait()) + _told(f"listeners: {name}", seen)
        wrong += _told("listeners: a script of exec", _of_script(folder))
        filled = _filled(folder, draw)
        wrong += row("stores filled by a stranger", filled, 10)
        held, done = _killed(folder, kills, draw)
        wrong += row("launchers killed, nobody left", held, done)
    return int(bool(wrong))


def row(name: str, held: int, count: int, more: str = "") -> int:
    """Print a line of the table; return how many did not hold."""
    print(f"{name:52} {f'{held} of {count}':>10}{more}", flush=True)
    return count - held


def _told(name: str, seen: set[doors.Door]) -> int:
    wide = [door for door in seen if not door.is_narrow]
    row(name, len(seen) - len(wide), len(seen))
    for door in sorted(wide, key=str):
        print(f"    {door.kind} {door.where}")
    return len(wide) + (not seen)  # a job that listens nowhere was not looked at


def _of_script(folder: Path) -> set[doors.Door]:
    (folder / "script.py").write_text(SCRIPT)
    child = zygote.start("-m", "etude", "exec", "--nproc", "2", "script.py", cwd=folder, env=_environment())
    seen: set[doors.Door] = set()
    while child.poll() is None:
        seen |= doors.doors(child.pid)
        time.sleep(0.02)
    return seen


def _filled(folder: Path, draw: random.Random) -> int:
    """Return how many of ten jobs, whose stores are overwritten, ended well or with a message and ran nothing."""
    held = 0
    for number in range(10):
        mark = folder / f"run-{number}"
        value = pickle.dumps(Payload(mark)) if number % 2 else draw.randbytes(1 << draw.randrange(14))
        port = 20_000 + draw.randrange(10_000)
        with _jobs(folder) as jobs:
            words = (*WORDS, f"store-{number}", "+parallel.strategy=fsdp")
            job = jobs.start(*words, cwd=folder, endpoint=f"localhost:{port}", hang_timeout=10.0)
            write_into_store(job, port, value)
            held += job.wait() in (0, 2, 8) and not mark.exists() and "Traceback" not in job.output
    return held


def _killed(folder: Path, kills: int, draw: random.Random) -> tuple[int, int]:
    """Kill launchers; return how many left nobody, and how many there was time for."""
    held = done = 0
    ends = time.monotonic() + LONGEST
    while done < kills and time.monotonic() < ends:
        run = folder / f"kill-{done}"
        moment = when_finished(run, draw.random() / 4) if done % 2 else after(draw.random() * 3)
        held += not left(kill_when(start(folder, run.name), moment))
        done += 1
    if done < kills:
        print(f"    of {kills} launchers there was time for {done}")
    return held, done
