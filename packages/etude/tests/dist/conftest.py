"""Jobs of several real processes on gloo, started by one launcher that has torch loaded already."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import zygote
from tests.places import REPOSITORY, SOURCES, TEST_PATHS

#: Seconds; a machine may be very busy.
PATIENCE = 600.0


class Job:
    """A command that was begun in several processes."""

    def __init__(self, jobs: Jobs, begin: int) -> None:
        self.jobs, self._begin, self._code = jobs, begin, None

    def wait(self) -> int:
        if self._code is None:
            self._code = json.loads(self.jobs.answers.get(timeout=PATIENCE))["code"]
        return self._code

    @property
    def output(self) -> str:
        return self.jobs.log.read_text(errors="replace")[self._begin :]

    def until(self, words: str) -> None:
        """Wait until the job has printed ``words``."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.output:
            assert time.monotonic() < deadline, f"never printed {words!r}:\n{self.output}"
            time.sleep(0.05)

    def send(self, number: int, *, pid: int | None = None) -> None:
        """A signal to the launcher, or to one process of the job."""
        os.kill(self.jobs.process.pid if pid is None else pid, number)


class Jobs:
    """Starts jobs one after another."""

    def __init__(self, log: Path, network: str = "", **environment: str) -> None:
        """``network``: the network namespace that they are in."""
        self.log = log
        given = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD_"))}
        given |= {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(map(str, [*SOURCES, *TEST_PATHS])),
        } | environment
        reading, theirs_out = os.pipe()
        theirs_in, writing = os.pipe()
        self.requests, self._lines = os.fdopen(writing, "w"), os.fdopen(reading)
        with open(log, "wb") as stream:
            files = (theirs_in, theirs_out, stream.fileno())
            words = ("-m", "tests.dist.harness", *([network] if network else []))
            self.process = zygote.start(*words, cwd=REPOSITORY, env=given, files=files)
        os.close(theirs_in), os.close(theirs_out)
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._lines:
            self.answers.put(line)
        self.answers.put(json.dumps({"code": self.process.wait()}))  # a launcher that cannot return ends itself

    def start(self, *words: Any, cwd: Path, nproc: int = 2, max_restarts: int = 0, **options: Any) -> Job:
        job = Job(self, len(self.log.read_text(errors="replace")))
        request = {"words": [*map(str, words)], "cwd": str(cwd), "nproc": nproc, "max_restarts": max_restarts}
        self.requests.write(json.dumps(request | options) + "\n")
        self.requests.flush()
        return job

    def run(self, *words: Any, cwd: Path, code: int = 0, **options: Any) -> Job:
        """A job from beginning to end, which must be with ``code``."""
        job = self.start(*words, cwd=cwd, **options)
        assert job.wait() == code, job.output
        return job

    def close(self) -> None:
        with suppress(ProcessLookupError):  # the thread that reads its answers sees its end
            os.kill(self.process.pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The processes below one, the nearest first."""
    below = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                below.append(int(path.parent.name))
    return below + [one for child in below for one in descendants(child)]


@pytest.fixture(scope="session")
def jobs(tmp_path_factory):
    made = Jobs(tmp_path_factory.mktemp("jobs") / "log.txt")
    yield made
    made.close()
