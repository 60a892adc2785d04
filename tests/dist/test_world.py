"""Who a process is, as launchers tell it, and ranks that never meet."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from etude.dist import group
from etude.dist.world import World
from etude.errors import UserError


def test_torchrun_and_slurm_say_the_same_in_their_words():
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node7",
                "MASTER_PORT": "29500"}  # fmt: skip
    slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
             "SLURM_STEP_NODELIST": "node[7-8]", "MASTER_PORT": "29500"}  # fmt: skip
    assert World.from_environment(torchrun) == World.from_environment(slurm)
    assert World.from_environment(torchrun).shard == (3, 4)


def test_a_batch_script_of_slurm_is_one_process():
    assert World.from_environment({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) == World()


@pytest.mark.parametrize("wrong", [{"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}])
def test_numbers_that_cannot_be_are_refused(wrong):
    with pytest.raises(UserError, match="the environment says"):
        World.from_environment(wrong)


def test_ranks_that_do_not_meet_are_told_before_training(monkeypatch):
    """Row 59 of the faults: nobody answers, the port is taken, the launcher has not said where."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=f"rank 1 of 2 on .* does not find the others at localhost:{port}"):
        group.join(World(rank=1, size=2, address="localhost", port=port), timeout=timedelta(seconds=1))
    monkeypatch.setattr(group, "_TRIES", 2)  # a port that is being freed is tried again, for five seconds
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"rank 0 of 2 on .* at localhost:{port}: .*in use"):
            group.join(World(rank=0, size=2, address="localhost", port=port), timeout=timedelta(seconds=1))
    with pytest.raises(UserError, match="MASTER_ADDR"):
        group.join(World(rank=1, size=2))
    assert not group.is_joined()
