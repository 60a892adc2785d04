"""``to_global`` and ``to_local``, and plain tensors made global."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import nn
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from etude.dist import objects
from etude.errors import UserCodeError
from etude_libai.live.oneflow.placements import get_layer_placement, get_nd_sbp, sbp
from etude_libai.live.split import meshes
from etude_libai.live.split.stages import Crossing

#: Torch's own; OneFlow's name hides it on plain tensors.
_to_local = DTensor.to_local


def to_global(self: Any, placement: Any = None, sbp: Any = None, grad_sbp: Any = None) -> Any:
    """Return a tensor on the ranks of ``placement``, split as ``sbp`` says; its gradient as ``grad_sbp`` says."""
    if isinstance(self, nn.Module):
        _each(self, lambda tensor: to_global(tensor, placement, sbp))
        return self
    if not isinstance(self, DTensor):
        if placement is None or sbp is None:
            raise UserCodeError("to_global of a local tensor needs placement= and sbp=")
        return _from_local(self, meshes.mesh_of(placement), sbp)
    made = self
    if placement is not None and (mesh := meshes.mesh_of(placement)) != made.device_mesh:
        made = Crossing.apply(made, mesh)  # type: ignore[no-untyped-call]
    if sbp is not None:
        made = _redistributed(made, sbp)
    if grad_sbp is not None:
        made = _GradientAs.apply(made, grad_sbp)  # type: ignore[no-untyped-call]
    return made


def _redistributed(tensor: DTensor, signature: Any) -> DTensor:
    wanted = meshes.to_torch(signature, tensor.device_mesh, tensor.ndim)
    # DTensor does not make sums of what is whole. Without, the value is the same.
    wanted = [old if new.is_partial() else new for old, new in zip(tensor.placements, wanted, strict=True)]
    if any(type(how).__name__ == "_MaskPartial" for how in tensor.placements):
        # What an embedding remembers of its indices is of the shape before they are split.
        tensor = tensor.redistribute(placements=meshes.without_sums(tensor.placements))
    return tensor if tuple(wanted) == tensor.placements else tensor.redistribute(placements=wanted)


class _GradientAs(Function):
    """Does nothing in the forward pass, and converts the gradient in the backward pass."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, signature: Any) -> Any:
        ctx.signature = signature
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:
        return _redistributed(grad, ctx.signature), None


def to_local(self: torch.Tensor) -> torch.Tensor:
    """Return the piece of this process; nothing (of shape 0) where the tensor is on other ranks."""
    return _to_local(self) if isinstance(self, DTensor) else self


def _from_local(local: torch.Tensor, mesh: DeviceMesh, signature: Any) -> DTensor:
    """Return the global tensor of local ones: pieces where it is split, and the first rank's where it is whole."""
    local = _as_first(local, mesh)
    how = meshes.to_torch(signature, mesh, local.ndim)
    shape = list(local.shape)
    for size, one in zip(mesh.shape, how, strict=True):
        if one.is_shard():
            shape[one.dim] *= size
    if meshes.is_here(mesh):
        local = _agreed(local.contiguous(), mesh, how)
    return meshes.of_piece(local, mesh, how, shape)


#: In an order that all processes have.
_DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip


def _as_first(local: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """Return ``local``; on a process that is none of the mesh's, an empty tensor like that of the mesh's first rank."""
    if meshes.covers_all(mesh):
        return local
    told = torch.zeros(10, dtype=torch.int64)
    told[: local.ndim + 2] = torch.tensor([_DTYPES.index(local.dtype), local.ndim, *local.shape])
    torch_dist.broadcast(told, meshes.first_rank(mesh))
    if meshes.is_here(mesh):
        return local
    kind, ndim, *shape = told.tolist()
    return torch.empty(shape[:ndim], dtype=_DTYPES[kind], device=local.device)


def _agreed(local: torch.Tensor, mesh: DeviceMesh, how: Sequence[Any]) -> torch.Tensor:
    """Return ``local``, or the first rank's where all have to have the same. Raises an error for other shapes."""
    own = torch.tensor(local.shape, dtype=torch.int64)
    for dim, one in enumerate(how):
        group = mesh.get_group(dim)
        if torch_dist.get_world_size(group) == 1:
            continue
        shapes = objects.all_gather(tuple(own.tolist()), group)
        if len(set(shapes)) > 1:
            ranks = torch_dist.get_process_group_ranks(group)
            listed = ", ".join(f"{shape} on rank {rank}" for rank, shape in zip(ranks, shapes, strict=True))
            raise UserCodeError(f"to_global: all processes need pieces of one shape; this tensor is {listed}")
        if one.is_replicate():
            local = local.detach().clone() if not local.requires_grad else local
            torch_dist.broadcast(local.detach(), group=group, group_src=0)
    return local


def like(whole: torch.Tensor, other: Any) -> Any:
    """Return a whole tensor that every process has, for an operation together with ``other``."""
    if not isinstance(other, DTensor) or isinstance(whole, DTensor):
        return whole
    return meshes.pieces(whole, other.device_mesh, meshes.to_torch(sbp.broadcast, other.device_mesh, whole.ndim))


def by_default(value: Any) -> Any:
    """Return a tensor or module with every plain tensor whole on all ranks of the first layer."""
    if isinstance(value, nn.Module):
        _each(value, by_default)
        return value
    if isinstance(value, DTensor):
        return value
    mesh = meshes.mesh_of(get_layer_placement(0))
    return meshes.pieces(value, mesh, meshes.to_torch(get_nd_sbp([sbp.broadcast] * 2), mesh, value.ndim))


def _each(module: nn.Module, convert: Any) -> None:
    """Replace parameters and buffers. A parameter that two modules share stays shared."""
    made: dict[int, nn.Parameter] = {}
    for one in module.modules():
        for name, parameter in one._parameters.items():
            if parameter is not None:
                new = made.get(id(parameter))
                if new is None:
                    data = convert(parameter.detach())
                    kept = isinstance(parameter, DTensor) and data is parameter
                    new = parameter if kept else nn.Parameter(data, requires_grad=parameter.requires_grad)
                    made[id(parameter)] = new
                one._parameters[name] = new
        for name, buffer in one._buffers.items():
            if buffer is not None:
                one._buffers[name] = convert(buffer)
