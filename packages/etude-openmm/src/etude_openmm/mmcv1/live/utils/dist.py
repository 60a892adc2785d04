"""Starts a process group, and averages tensors over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from etude_openmm.shared.live.processes import get_dist_info, join, master_only

__all__ = ["allreduce_grads", "allreduce_params", "get_dist_info", "init_dist", "master_only"]


def init_dist(launcher: str, backend: str = "nccl", **kwargs: Any) -> None:
    """Join the process group, from the environment that ``launcher`` (``pytorch``, ``slurm``, ``mpi``) has set."""
    join(launcher, backend, **kwargs)


def allreduce_params(params: Iterable[Tensor], coalesce: bool = True, bucket_size_mb: int = -1) -> None:
    """Replace every tensor by its mean over all ranks."""
    _mean_over_ranks([param.data for param in params], coalesce)


def allreduce_grads(params: Iterable[Tensor], coalesce: bool = True, bucket_size_mb: int = -1) -> None:
    """Replace every gradient by its mean over all ranks."""
    grads = [param.grad.data for param in params if param.requires_grad and param.grad is not None]
    _mean_over_ranks(grads, coalesce)


def _mean_over_ranks(tensors: list[Tensor], coalesce: bool) -> None:
    _, world_size = get_dist_info()
    if world_size == 1:
        return
    kinds: dict[tuple[Any, Any], list[Tensor]] = {}
    for number, tensor in enumerate(tensors):
        kinds.setdefault((tensor.dtype, None if coalesce else number), []).append(tensor)
    for group in kinds.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        dist.all_reduce(flat)
        # Counters of buffers, such as num_batches_tracked, stay integers.
        flat = flat / world_size if flat.is_floating_point() else flat // world_size
        for tensor, mean in zip(group, torch.split(flat, [tensor.numel() for tensor in group]), strict=True):
            tensor.copy_(mean.view_as(tensor))
