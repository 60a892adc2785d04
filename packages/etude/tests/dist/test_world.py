"""Who a process is, as launchers tell it, and ranks that never meet."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from etude.cli import main
from etude.dist import group
from etude.dist.layout.mesh import Mesh
from etude.dist.layout.wrap import _blocks
from etude.dist.world import World
from etude.errors import UserError
from etude.plan import Parallel

CONFIG = """\
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 64}}
optim: {type: SGD, lr: 0.1}
train: {steps: 2}
"""


def test_torchrun_and_slurm_say_the_same_in_their_words():
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node7",
                "MASTER_PORT": "29500"}  # fmt: skip
    slurm = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
             "SLURM_STEP_NODELIST": "node[7-8]", "MASTER_PORT": "29500"}  # fmt: skip
    assert World.from_environment(torchrun) == World.from_environment(slurm)
    assert Mesh.flat(World.from_environment(torchrun)).share == (3, 4)


def test_a_batch_script_of_slurm_is_one_process():
    assert World.from_environment({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) == World()


@pytest.mark.parametrize("wrong", [{"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}])
def test_numbers_that_cannot_be_are_refused(wrong):
    with pytest.raises(UserError, match="the environment says"):
        World.from_environment(wrong)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nproc", "0"), "'0' is not a whole number of at least 1"),
        (("--nproc", "2", "--max-restarts", "-1"), "'-1' is not a whole number of at least 0"),
        (("--nproc", "2", "--hang-timeout", "0"), "--hang-timeout takes a time, not '0'; write 90s, 20min or 3h"),
        (("--nnodes", "2"), "--nnodes 2: name their meeting point: --rdzv-endpoint HOST:PORT"),
        (("--nproc", "2", "--rdzv-endpoint", "node0"), "--rdzv-endpoint node0: write HOST:PORT, as in node0:29400"),
        (
            ("--nnodes", "2", "--rdzv-endpoint", "no.invalid:1"),
            "--rdzv-endpoint no.invalid:1: this machine does not know",
        ),
        (("--nproc", "2", "+parallel.strategy=none"), "parallel.strategy is none, but there are 2 processes; ddp,"),
        (("--nproc", "2", "+parallel.strategy=hsdp"), "2 processes with shards: 2 do not make that; use fsdp"),
        (
            ("--nproc", "4", "+parallel.strategy=hsdp"),
            "4 processes with shards: 4 do not make that; write shards: 2, or",
        ),
        (("--nproc", "6", "+parallel.strategy=hsdp", "+parallel.shards=4"), "write shards: 2 or 3, or use fsdp"),
    ],
)
def test_a_start_that_cannot_succeed_is_refused_before_any_process(workdir, capsys, words, said):
    Path("c.yaml").write_text(CONFIG)
    assert main(["train", "c.yaml", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_before_any_process(workdir, capsys):
    Path("c.yaml").write_text(CONFIG)
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        where = f"localhost:{taken.getsockname()[1]}"
        assert main(["train", "c.yaml", "--nproc", "2", "--rdzv-endpoint", where]) == 2
    assert f"--rdzv-endpoint {where}: Address already in use; choose another port" in capsys.readouterr().err


def test_more_processes_than_cores_are_warned_of(workdir, capsys, monkeypatch):
    Path("c.yaml").write_text(CONFIG)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert main(["train", "c.yaml", "--nproc", "3", "+parallel.strategy=none"]) == 2
    assert "etude: warning: 3 processes share 1 core\n" in capsys.readouterr().err


def test_large_modules_are_sharded_before_those_that_hold_them():
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.inner = torch.nn.Parameter(torch.ones(50)), torch.nn.Linear(8, 8)

    model = torch.nn.Sequential(Outer())
    assert _blocks(model, Parallel(strategy="fsdp", min_params=50)) == [model[0].inner, model[0]]


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


def test_the_mesh_tells_a_rank_from_a_share_of_the_data():
    """Two copies of a model that four ranks hold together: pipeline 2, tensor 2."""
    ranks = [Mesh(rank, pipeline=2, copy=2, tensor=2) for rank in range(8)]
    assert [mesh.share for mesh in ranks] == [(0, 2), (0, 2), (1, 2), (1, 2)] * 2
    assert [mesh.counts for mesh in ranks] == [False] * 4 + [True, False, True, False]
    assert [mesh.stream.rank for mesh in ranks] == [0, 0, 1, 1, 2, 2, 3, 3] and ranks[5].stream.size == 4
    assert all(mesh.is_split for mesh in ranks) and not Mesh.flat(World(3, 4)).is_split
    cut = [Mesh(rank, shard=2, context=2) for rank in range(4)]
    assert [mesh.share for mesh in cut] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert [mesh.gradient for mesh in cut] == [(0, 4), (1, 4), (2, 4), (3, 4)] and all(mesh.counts for mesh in cut)
    assert repr(ranks[6]) == "<Mesh: pipeline 1 of 2, copy 1 of 2, tensor 0 of 2>" and "one process" in repr(Mesh(0))
