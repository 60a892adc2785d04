"""``mmengine.dist`` in one process, and in two that talk by gloo."""

from __future__ import annotations

import os
import socket
import textwrap
from typing import Any

import pytest
import torch

from etude.dialects import imports
from tests import zygote

imports.install()

from mmengine import dist  # noqa: E402
from mmengine.dist.dist import _get_reduce_op  # noqa: E402


def test_one_process_is_a_world_of_its_own() -> None:
    assert dist.get_dist_info() == (0, 1) and dist.is_main_process() and not dist.is_distributed()
    assert (dist.get_local_rank(), dist.get_local_size(), dist.get_world_size(), dist.get_rank()) == (0, 1, 1, 0)
    assert dist.get_backend() is None and dist.get_default_group() is None and dist.get_local_group() is None
    assert dist.get_comm_device() == torch.device("cpu")
    dist.barrier()
    assert dist.master_only(lambda: 3)() == 3
    assert 0 <= dist.sync_random_seed() < 2**31


def test_collectives_of_one_process_change_nothing() -> None:
    data = torch.arange(2)
    dist.all_reduce(data)
    dist.broadcast(data)
    assert data.tolist() == [0, 1]
    assert dist.all_gather(data) == [data] and dist.gather(data) == [data]
    objects: list[Any] = ["a", {"b": 1}]
    dist.broadcast_object_list(objects)
    assert objects == ["a", {"b": 1}]
    assert dist.all_gather_object("x") == ["x"] and dist.gather_object("x") == ["x"]
    losses = {"b": torch.ones(2), "a": torch.zeros(())}
    dist.all_reduce_dict(losses)
    assert losses["b"].tolist() == [1, 1]
    dist.all_reduce_params([torch.ones(1)])
    assert dist.collect_results(["a", "b", "padding"], 2) == ["a", "b"]
    with pytest.raises(NotImplementedError):
        dist.collect_results([], 0, device="unknown")
    with pytest.raises(ValueError):
        _get_reduce_op("unknown")


def test_devices_of_data() -> None:
    assert dist.get_data_device({"a": [torch.ones(1)], "b": torch.ones(1)}) == torch.device("cpu")
    with pytest.raises(ValueError):
        dist.get_data_device([torch.ones(1), torch.ones(1, device="meta")])
    with pytest.raises(ValueError):
        dist.get_data_device([])
    with pytest.raises(TypeError):
        dist.get_data_device("text")
    moved = dist.cast_data_device({"a": [torch.ones(1)], "b": (torch.ones(1),)}, torch.device("meta"))
    assert moved["a"][0].device.type == moved["b"][0].device.type == "meta"
    out = {"a": torch.zeros(2)}
    dist.cast_data_device({"a": torch.ones(2)}, torch.device("cpu"), out=out)
    assert out["a"].tolist() == [1, 1]
    for data, target in (([torch.ones(1)], {}), ([torch.ones(1)], []), ({"a": torch.ones(1)}, {"b": torch.ones(1)})):
        with pytest.raises((TypeError, ValueError)):
            dist.cast_data_device(data, torch.device("cpu"), out=target)


@pytest.mark.parametrize(
    ("variable", "launcher"),
    [("WORLD_SIZE", "pytorch"), ("SLURM_NTASKS", "slurm"), ("OMPI_COMM_WORLD_LOCAL_RANK", "mpi")],
)
def test_the_launcher_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch, variable: str, launcher: str) -> None:
    for name in ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert dist.infer_launcher() == "none"
    monkeypatch.setenv(variable, "1")
    assert dist.infer_launcher() == launcher


def test_wrong_launchers_and_timeouts_are_refused() -> None:
    with pytest.raises(ValueError, match="Invalid launcher"):
        dist.init_dist("unknown")
    with pytest.raises(TypeError, match="seconds"):
        dist.init_dist("pytorch", timeout="soon")


TWO = """
import torch
from etude.dialects import imports
imports.install()
from mmengine import dist

dist.init_dist("pytorch", timeout=60)  # the default backend, nccl: gloo stands in where there is no GPU
rank, world = dist.get_dist_info()
assert world == 2 and dist.get_backend() == "gloo" and dist.is_main_process() == (rank == 0)
assert (dist.get_local_rank(), dist.get_local_size()) == (rank, 2)

for op, expected in (("sum", 3), ("mean", 1.5), ("max", 2), ("min", 1), ("product", 2)):
    data = torch.tensor([rank + 1.0])
    dist.all_reduce(data, op)
    assert data.item() == expected, op
assert [t.item() for t in dist.all_gather(torch.tensor(rank))] == [0, 1]
assert [t.item() for t in dist.gather(torch.tensor(rank))] == ([0, 1] if rank == 0 else [])
data = torch.tensor([rank])
dist.broadcast(data, src=1)
assert data.item() == 1
objects = [{"rank": rank}]
dist.broadcast_object_list(objects)
assert objects == [{"rank": 0}]
assert dist.all_gather_object(rank) == [0, 1]
assert dist.gather_object(rank) == ([0, 1] if rank == 0 else None)
losses = {"b": torch.full((2,), float(rank)), "a": torch.tensor(1.0)}
dist.all_reduce_dict(losses, "mean")
assert losses["b"].tolist() == [0.5, 0.5] and losses["a"].item() == 1
for coalesce, size in ((True, -1), (True, 1), (False, -1)):
    params = [torch.full((3,), rank + 1.0), torch.full((2, 2), float(rank)), torch.tensor([rank + 1], dtype=torch.float64)]
    dist.all_reduce_params(params, coalesce=coalesce, bucket_size_mb=size, op="sum")
    assert [t.flatten()[0].item() for t in params] == [3, 1, 3]
seeds = dist.all_gather_object(dist.sync_random_seed())
assert seeds[0] == seeds[1]
mine = list("ace") if rank == 0 else list("bda")
assert dist.collect_results(mine, 5) == (list("abcde") if rank == 0 else None)
assert dist.collect_results(mine, 5, device="gpu") == (list("abcde") if rank == 0 else None)
assert dist.master_only(lambda: 3)() == (3 if rank == 0 else None)

from mmengine.dataset import DefaultSampler
assert list(DefaultSampler(range(5), shuffle=False)) == ([0, 2, 4] if rank == 0 else [1, 3, 0])
dist.barrier()
torch.distributed.destroy_process_group()
print("fine", rank)
"""


def test_two_processes_talk() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    started = [
        zygote.start(
            "-c",
            textwrap.dedent(TWO),
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]
    outputs = ["".join(process.communicate()) for process in started]
    assert [f"fine {rank}" in output for rank, output in enumerate(outputs)] == [True, True], "\n".join(outputs)
