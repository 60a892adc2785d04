"""Converts OneFlow's placements to device meshes, its sbp signatures to DTensor's placements, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as torch_dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from etude.errors import UserError
from etude_libai.live import topology
from etude_libai.live.oneflow.placements import placement, sbp

DATA, TENSOR = "data", "tensor"


@cache
def _mesh(kind: str, shape: tuple[int, ...], ranks: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    return DeviceMesh(kind, torch.tensor(ranks, dtype=torch.int).view(shape), mesh_dim_names=names)


def mesh_of(place: placement) -> DeviceMesh:
    """Return the mesh of a placement. All processes make the same meshes in the same order, also of other ranks."""
    ranks = np.asarray(place.ranks)
    if ranks.ndim > 2:
        raise UserError(f"{place}: a placement has one or two dimensions here")
    names = (DATA, TENSOR) if ranks.ndim == 2 else (TENSOR if topology.get_tensor_parallel_size() > 1 else DATA,)
    return _mesh(place.device.type, ranks.shape, tuple(int(rank) for rank in ranks.flatten()), names)


def placement_of(mesh: DeviceMesh) -> placement:
    return placement(mesh.device_type, mesh.mesh.tolist())


def make_stages(kind: str) -> None:
    """Make the meshes of all stages, in the same order on all processes."""
    util = topology.get_dist_util()
    for layer in sorted({stage: at for at, stage in reversed(list(enumerate(util.layer_stages or [0])))}.values()):
        mesh_of(placement(kind, util.get_layer_ranks(layer)))


def is_here(mesh: DeviceMesh) -> bool:
    """Return whether this process is one of the mesh's."""
    return mesh.get_coordinate() is not None


def first_rank(mesh: DeviceMesh) -> int:
    return int(mesh.mesh.flatten()[0])


def covers_all(mesh: DeviceMesh) -> bool:
    return bool(mesh.size() == torch_dist.get_world_size())


def to_torch(signature: Any, mesh: DeviceMesh, ndim: int) -> list[Any]:
    """Return DTensor's placements for a signature of as many dimensions as the mesh, or of one for all."""
    parts = [signature] * mesh.ndim if isinstance(signature, sbp) else list(signature)
    if len(parts) != mesh.ndim:
        raise UserError(f"the signature {parts} is for {len(parts)} dimensions of ranks, the placement has {mesh.ndim}")
    return [_one(part, ndim) for part in parts]


def _one(part: sbp, ndim: int) -> Any:
    if part.name.startswith("split("):
        dim = int(part.name[6:-1])
        return Shard(dim % ndim if ndim else dim)
    return Partial() if part == sbp.partial_sum else Replicate()


def to_sbp(placements: Sequence[Any]) -> tuple[sbp, ...]:
    """Return the signature of DTensor's placements."""
    return tuple(
        sbp.broadcast if how.is_replicate() else sbp.partial_sum if how.is_partial() else sbp.split(how.dim)
        for how in placements
    )


def handlers() -> dict[Any, Any]:
    """Return DTensor's table of operations that functions of their own run."""
    return DTensor._op_dispatcher._custom_op_handlers


def nothing(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return what a process has of a tensor that is on other ranks. A scalar has no empty piece."""
    return like.new_empty(0) if len(shape) else like.new_zeros(())


def of_piece(
    piece: torch.Tensor, mesh: DeviceMesh, how: Sequence[Any], shape: Sequence[int], stride: Any = None
) -> DTensor:
    """Return the global tensor of which this process has ``piece``. Nothing is sent."""
    if not is_here(mesh):
        piece = nothing(piece, shape)
    stride = torch.empty(shape, device="meta").stride() if stride is None else stride
    return DTensor.from_local(piece, mesh, how, run_check=False, shape=torch.Size(shape), stride=stride)


def pieces(whole: torch.Tensor, mesh: DeviceMesh, how: Sequence[Any]) -> DTensor:
    """Return the global tensor of a whole one that every process has. Nothing is sent."""
    return distribute_tensor(whole, mesh, list(how), src_data_rank=None)


@torch.no_grad()
def whole(value: Any) -> Any:
    """Return a global tensor whole, on every process. All of them have to call this together."""
    if not isinstance(value, DTensor):
        return value
    mesh = value.device_mesh
    if not is_here(mesh):
        made = torch.empty(value.shape, dtype=value.dtype, device=value.device)
    else:
        made = value.full_tensor().contiguous()
    if not covers_all(mesh):
        torch_dist.broadcast(made, first_rank(mesh))
    return made


def without_sums(placements: Sequence[Any], *, keep: tuple[int, ...] | None = None) -> list[Any]:
    """Return the placements with sums added up, and with tensors whole in all dimensions but ``keep``."""
    return [
        Replicate()
        if how.is_partial() or (keep is not None and not how.is_replicate() and how.dim not in keep)
        else how
        for how in placements
    ]
