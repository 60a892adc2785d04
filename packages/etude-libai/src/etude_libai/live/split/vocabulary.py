"""The cross entropy of logits whose classes are split over ranks, without gathering them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as torch_dist
import torch.nn.functional as F
from torch.autograd import Function
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from etude_libai.live.split import meshes


def cross_entropy(logits: Any, labels: Any) -> torch.Tensor:
    """Return the loss of every sample, of logits (samples × classes)."""
    split = [dim for dim, how in enumerate(logits.placements) if how.is_shard(1)]
    if len(split) != 1 or any(how.is_partial() for how in logits.placements):
        return F.cross_entropy(logits, labels, reduction="none")
    how = [Replicate() if dim == split[0] else one for dim, one in enumerate(logits.placements)]
    made: torch.Tensor = _SplitCrossEntropy.apply(logits, labels.redistribute(placements=how), split[0])  # type: ignore[no-untyped-call]
    return made


class _SplitCrossEntropy(Function):
    """Each rank adds up its own classes: one maximum and one sum are exchanged."""

    @staticmethod
    def forward(ctx: Any, logits: DTensor, labels: DTensor, dim: int) -> DTensor:
        mesh, how = logits.device_mesh, list(logits.placements)
        ctx.of, ctx.here = (mesh, tuple(how), logits.shape, logits.stride()), meshes.is_here(mesh)
        how[dim] = Replicate()
        if not ctx.here:
            loss = logits._local_tensor
        else:
            own, group = logits._local_tensor, mesh.get_group(dim)
            _, offset = compute_local_shape_and_global_offset(logits.shape, mesh, logits.placements)
            label = labels._local_tensor - offset[1]
            mine = (label >= 0) & (label < own.shape[1])
            label = label.clamp(0, own.shape[1] - 1)
            top = own.detach().amax(1)
            torch_dist.all_reduce(top, torch_dist.ReduceOp.MAX, group)
            shifted = own - top[:, None]
            sums = torch.stack([shifted.gather(1, label[:, None])[:, 0] * mine, shifted.exp().sum(1)])
            torch_dist.all_reduce(sums, group=group)
            loss = sums[1].log() - sums[0]
            ctx.save_for_backward(shifted.exp() / sums[1][:, None], label, mine)
        return meshes.of_piece(loss, mesh, how, labels.shape, labels.stride())

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:
        mesh, how, shape, stride = ctx.of
        own = grad.redistribute(placements=[Replicate() if one.is_shard(1) else one for one in how])._local_tensor
        if ctx.here:
            chances, label, mine = ctx.saved_tensors
            own = chances.scatter_add(1, label[:, None], -mine.to(chances.dtype)[:, None]) * own[:, None]
        return meshes.of_piece(own, mesh, how, shape, stride), None, None
