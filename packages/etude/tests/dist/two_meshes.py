"""Run on four ranks: pieces of tensors that two mechanisms split, and of tensors that other ranks hold."""

from __future__ import annotations

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from etude.dist import group
from etude.dist.layout import shards
from etude.dist.world import World


def assembled(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the pieces that ranks save make together, and how often each element is saved."""
    piece = shards.piece_of(tensor)
    made, times = torch.full(tuple(tensor.shape), float("nan")), torch.zeros(tuple(tensor.shape))
    for local, offset, saved in group.gather((piece.local.detach().clone(), piece.offset, piece.saved_here)):
        if saved and local.numel():
            where = tuple(slice(begin, begin + size) for begin, size in zip(offset, local.shape, strict=True))
            made[where] = local
            times[where] += 1
    return made, times


def fsdp_over_tensor() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
    for width in (8, 7):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(width, 2 * width), nn.Linear(2 * width, width))
        wanted = {name: param.detach().clone() for name, param in model.named_parameters()}
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        fully_shard(model, mesh=mesh["shard"])
        for name, param in model.named_parameters():
            made, times = assembled(param)
            assert torch.equal(made, wanted[name]), f"{name} of width {width}: {int(made.isnan().sum())} are missing"
            assert times.eq(1).all(), f"{name} of width {width} is saved more than once"
            assert torch.equal(shards.like(wanted[name], param).to_local(), param.to_local()), name


def another_stage() -> None:
    first, last = DeviceMesh("cpu", [0, 1]), DeviceMesh("cpu", [2, 3])
    for mesh in (first, last):
        weight = torch.arange(12.0).view(4, 3)
        made, times = assembled(distribute_tensor(weight, mesh, [Shard(0)], src_data_rank=None))
        assert torch.equal(made, weight) and times.eq(1).all()


group.join(World.from_environment())
fsdp_over_tensor()
another_stage()
distributed.barrier()
group.leave()
