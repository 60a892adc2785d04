"""Two launchers that meet as two machines do: in network namespaces of their own where this machine allows it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.dist import project
from tests.dist.conftest import Job, Jobs

WORDS = ("train", "config.yaml", "-q", "--folder")
NETWORK = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True).returncode == 0


class Nodes:
    """Two machines, each with a launcher, and the cable between them."""

    def __init__(self, folder: Path) -> None:
        self.names = [f"etude-{os.getpid()}-{node}" for node in (0, 1)]
        self.ends = [f"et{os.getpid() % 100000}{node}" for node in "ab"]
        self.apart = os.geteuid() == 0 and shutil.which("ip") is not None and self._lay_cable()
        with socket.socket() as free:
            free.bind(("localhost", 0))
            self.endpoint = f"{NETWORK}.1:29400" if self.apart else f"localhost:{free.getsockname()[1]}"
        patient = {"RES_OPTIONS": "timeout:1 attempts:1"}  # there is no server of names in there
        networks = self.names if self.apart else ["", ""]
        self.jobs = [Jobs(folder / f"log-{node}.txt", networks[node], **patient) for node in (0, 1)]
        self._count = 0

    def _lay_cable(self) -> bool:
        if not (ip("netns", "add", self.names[0]) and ip("netns", "add", self.names[1])):
            return False
        laid = ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for node, (name, end) in enumerate(zip(self.names, self.ends, strict=True)):
            laid = laid and ip("link", "set", end, "netns", name)
            laid = laid and ip("-n", name, "addr", "add", f"{NETWORK}.{node + 1}/24", "dev", end)
            laid = laid and ip("-n", name, "link", "set", end, "up") and ip("-n", name, "link", "set", "lo", "up")
        return laid

    def cable(self, state: str) -> None:
        assert ip("-n", self.names[1], "link", "set", self.ends[1], state)

    def start(self, *words: str, cwd: list[Path], more: tuple[str, ...] = (), **options) -> list[Job]:
        self._count += 1
        common = {"nproc": 1, "nodes": 2, "endpoint": self.endpoint, "job": f"job{self._count}", **options}
        return [self.jobs[node].start(*words, *(more if node else ()), cwd=cwd[node], **common) for node in (0, 1)]

    def run(self, *words: str, cwd: list[Path], code: int = 0, **options) -> str:
        begun = self.start(*words, cwd=cwd, **options)
        codes = [job.wait() for job in begun]
        said = "\n".join(job.output for job in begun)
        assert codes == [code, code], said
        return said

    def close(self) -> None:
        for jobs in self.jobs:
            jobs.close()
        for name in self.names:
            ip("netns", "del", name)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return project.make(tmp_path_factory.mktemp("shared"))


def test_two_nodes_train_as_two_processes_of_one(jobs, nodes, folder):
    nodes.run(*WORDS, "nodes", "+parallel.strategy=fsdp", cwd=[folder, folder])
    jobs.run(*WORDS, "one", "+parallel.strategy=fsdp", cwd=folder)
    assert project.same_bits(folder / "nodes", folder / "one")


def test_nodes_with_another_config_or_code_are_refused_before_the_first_step(nodes, folder, tmp_path):
    """Row 54 of the faults."""
    said = nodes.run(*WORDS, "lr", cwd=[folder, folder], more=("optim.lr=0.5",), code=2)
    assert re.search(r"rank 1 on \S+: optim.lr is 0.5, on rank 0 it is 0.01", said)
    other = project.make(tmp_path)
    (other / "job.py").write_text((other / "job.py").read_text() + "\n# another revision\n")
    said = nodes.run(*WORDS, str(folder / "code"), cwd=[folder, other], code=2)
    assert re.search(r"rank 1 on \S+: code of \S*job is \w+, on rank 0 it is \w+", said)
    assert not (folder / "lr").exists() and not (folder / "code").exists()


@pytest.mark.thorough  # waits for timeouts
def test_nodes_that_lose_their_network_end_and_go_on_when_it_is_back(jobs, nodes, folder):
    """Row 52 of the faults: a dead network looks like a frozen rank."""
    if not nodes.apart:
        pytest.skip("needs network namespaces (root, ip netns)")
    long = ("train", "config.yaml", "--folder", "cable", "train.epochs=4000")
    begun = nodes.start(*long, cwd=[folder, folder], hang_timeout=5.0, grace=5.0)
    begun[0].until("6/20000")
    nodes.cable("down")
    codes = [job.wait() for job in begun]
    said = "\n".join(job.output for job in begun)
    assert codes == [8, 8], said
    assert re.search(r"rank 0 on \S+ has not moved", said) and re.search(r"rank 1 on \S+ has not moved", said), said
    jobs.run(*WORDS, "cable", "--resume", "train.epochs=4", cwd=folder)
    assert project.records(folder / "cable")[-1]["step"] == 20
