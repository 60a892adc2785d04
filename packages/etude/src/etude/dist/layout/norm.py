"""Computes and clips the norm of gradients that lie in pieces on several ranks, over all axes of the mesh, with one
message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, distributed

from etude.dist.layout.mesh import Mesh
from etude.dist.layout.shards import complete, local, piece_of


@torch.no_grad()
def total_norm(tensors: Iterable[Tensor], mesh: Mesh) -> Tensor:
    """Return the norm of tensors of which each rank holds pieces or copies; the same on every rank."""
    given = list(map(complete, tensors))
    own = [local(one) for one in given if _is_counted(one, mesh)]
    device = given[0].device if given else torch.device("cpu")
    square = torch.zeros((), dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
    for norm in torch._foreach_norm(own) if own else ():
        square += norm.to(square.dtype) ** 2
    distributed.all_reduce(square)
    return square.sqrt().float()


@torch.no_grad()
def clip(params: Sequence[Tensor], most: float, mesh: Mesh) -> Tensor:
    """Scale the gradients of ``params`` down to a norm of ``most``; return the norm that they had."""
    grads = [param.grad for param in params if param.grad is not None]
    norm = total_norm(grads, mesh)
    own = [local(grad) for grad in grads]
    if own:
        torch._foreach_mul_(own, torch.clamp(most / (norm + 1e-6), max=1.0).to(own[0].device))
    return norm


def _is_counted(tensor: Tensor, mesh: Mesh) -> bool:
    """Return whether this rank is the first of those that hold the same piece."""
    piece = piece_of(tensor)
    if piece is not None:
        return piece.saved_here and piece.local.numel() > 0 and mesh.is_first(tensor)
    return mesh.is_first()
