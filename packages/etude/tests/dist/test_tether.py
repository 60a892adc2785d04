"""Nobody is left behind: the launcher is killed at any moment, its last ones included, on a machine that is busy."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.dist import project
from tests.dist.conftest import descendants
from tests.dist.security import after, kill_when, left, start, when_finished
from tests.sampling import sample

WORKERS = {"train": {"dataset": {"type": "job.Shaky", "size": 150}, "batch_size": 32, "workers": 2}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return project.make(tmp_path_factory.mktemp("behind"), data={**project.CONFIG["data"], **WORKERS})


@pytest.fixture
def busy():
    """Processes that take all cores."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for one in spinning:
        one.kill()
        one.wait()


@pytest.mark.parametrize("number", sample(list(range(8)), (0, 4)))
def test_a_launcher_that_is_killed_leaves_nobody(folder, busy, number):
    """Some time after the ranks came, from their import of the config to their end."""
    moment = after(number * 1.5 + random.random())
    assert left(kill_when(start(folder, f"any-{number}"), moment)) == []


@pytest.mark.parametrize("delay", sample([0.0, 0.01, 0.05, 0.1, 0.2, 0.5], (0, 3)))
def test_a_launcher_that_is_killed_in_the_last_moments_leaves_nobody(folder, busy, delay):
    """When the run says that it is finished, its ranks are about to end."""
    child = start(folder, f"last-{delay}")
    below = kill_when(child, when_finished(folder / f"last-{delay}", delay))
    assert below, (child.returncode, child.output(0), child.output(1))
    assert left(below) == []


def test_a_process_that_has_taken_the_number_of_one_that_ended_is_none_of_the_job():
    other = subprocess.Popen(["sleep", "600"])
    try:
        assert left({other.pid: "1"}) == [] and other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_ranks_that_are_stopped_are_killed_with_the_launcher(folder):
    """No thread of a process that is stopped can notice anything: the kernel ends it."""
    child = start(folder, "stopped", epochs=4000)
    stopped: set[int] = set()

    def moment(below: set[int]) -> bool:
        if (folder / "stopped" / "metrics.jsonl").exists() and not stopped:
            for pid in filter(_is_ours, descendants(child.pid)):
                os.kill(pid, signal.SIGSTOP)
                stopped.add(pid)
        return bool(stopped)

    below = kill_when(child, moment)
    assert stopped and left(below) == []


def _is_ours(pid: int) -> bool:
    """Python's resource tracker waits for the end of a pipe; it notices nothing while it is stopped."""
    with suppress(OSError):
        return b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
