"""Replicas that leave and join while the others train on: real processes, a real kill, torchft's own lighthouse."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from etude.cli import main
from tests import zygote
from tests.dist import doors, project

HOOK = """
import os
import etude


class Together(etude.Hook):
    \"\"\"Ends this replica ten steps into the n-th time that there are two: in good order, or by a kill.\"\"\"

    def __init__(self):
        self.times = self.steps = 0

    def after_step(self, run):
        if run.peers.count == 1:
            if self.steps:
                open("alone", "w").close()
            self.steps = 0
            return
        self.times += self.steps == 0
        self.steps += 1
        if (self.steps, self.times) == (10, int(os.environ["TIMES"])):
            if os.environ.get("DIES"):
                os.kill(os.getpid(), 9)
            run.stop("enough")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "together.py").write_text(HOOK)
    return project.make(
        tmp_path, imports=["job.py", "together.py"], hooks=["together.Together"], train={"epochs": 100000},
        checkpoint={"every": "1000ep"}, parallel={"strategy": "ddp", "fault_tolerant": True},
    )  # fmt: skip


def test_a_replica_is_killed_and_another_joins_the_one_that_trains_on(folder: Path) -> None:
    from torchft.coordination import LighthouseServer

    light = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000)
    # It tells the name of this machine, which may lead to another network.
    lighthouse = f"http://127.0.0.1:{light.address().rpartition(':')[2]}"
    usual = {"TORCHFT_LIGHTHOUSE": lighthouse, "NUM_REPLICA_GROUPS": "2", "OMP_NUM_THREADS": "1"}

    def start(number: int, name: str, **own: str) -> zygote.Child:
        environment = os.environ | usual | {"REPLICA_GROUP_ID": str(number)} | own
        return zygote.start("-m", "etude", "train", "config.yaml", "--folder", name, cwd=folder, env=environment)

    open_doors: set[doors.Door] = set()
    try:
        first, killed = start(0, "first", TIMES="2"), start(1, "killed", TIMES="1", DIES="1")
        assert killed.wait() == -9, killed.output(1)
        while not (folder / "alone").exists():
            assert first.poll() is None, first.output(1)
            open_doors |= doors.doors(first.pid)
            time.sleep(0.01)
        assert len(open_doors) >= 4  # the store, the server of torchft, that for the state, gloo
        assert [door for door in open_doors if not door.is_narrow] == []
        joined = start(1, "joined", TIMES="1")
        said = [one.communicate()[1] for one in (first, joined)]
        assert [first.returncode, joined.returncode] == [0, 0], said
    finally:
        light.shutdown()
    weights = [project.weights(folder / name) for name in ("first", "joined")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    steps = [project.records(folder / name)[-1]["step"] for name in ("first", "joined")]
    assert steps[0] == steps[1] > 20
    assert project.records(folder / "joined")[0]["step"] > 10  # it began where the other was


def test_what_a_replica_misses_is_said(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    assert main(["train", "config.yaml", "--folder", "none"]) == 2
    assert "TORCHFT_LIGHTHOUSE and REPLICA_GROUP_ID and NUM_REPLICA_GROUPS must be set" in capsys.readouterr().err
    for name, value in (("TORCHFT_LIGHTHOUSE", "http://x:1"), ("REPLICA_GROUP_ID", "2"), ("NUM_REPLICA_GROUPS", "2")):
        monkeypatch.setenv(name, value)
    assert main(["train", "config.yaml", "--folder", "none"]) == 2
    assert "REPLICA_GROUP_ID=2 is not a replica of NUM_REPLICA_GROUPS=2" in capsys.readouterr().err
    assert main(["check", "config.yaml", "parallel.strategy=fsdp"]) == 2
    assert "replicas hold the whole model, fsdp does not" in capsys.readouterr().out
