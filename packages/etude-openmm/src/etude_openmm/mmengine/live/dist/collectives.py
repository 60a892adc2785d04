"""Collectives of ``mmengine.dist``: all_reduce, all_gather, broadcast. They also work in a single process."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import chain, zip_longest
from typing import Any

import torch
from torch import Tensor
from torch import distributed as torch_dist
from torch.distributed import ProcessGroup

from etude.dist import objects
from etude_openmm.mmengine.live.dist.utils import (
    cast_data_device,
    get_comm_device,
    get_data_device,
    get_dist_info,
    get_rank,
    get_world_size,
)
from etude_openmm.shared.live.processes import gather_object as gather_object
from etude_openmm.shared.live.processes import random_seed_everywhere

_OPERATIONS = ("sum", "product", "min", "max", "band", "bor", "bxor")


def _get_reduce_op(name: str) -> Any:
    if name.lower() not in _OPERATIONS:
        raise ValueError(f"reduce op should be one of {list(_OPERATIONS)}, but got {name}")
    return getattr(torch_dist.ReduceOp, name.upper())


def all_reduce(data: Tensor, op: str = "sum", group: ProcessGroup | None = None) -> None:
    """Sum ``data`` over all processes, in place; or take the ``mean``, ``product``, ``min``, ``max`` …"""
    world_size = get_world_size(group)
    if world_size <= 1:
        return
    home = get_data_device(data)
    shared = cast_data_device(data, get_comm_device(group))
    # Only NCCL can average.
    torch_dist.all_reduce(shared, _get_reduce_op("sum" if op.lower() == "mean" else op), group)
    if op.lower() == "mean":
        shared = torch.true_divide(shared, world_size)
    cast_data_device(shared.to(data.dtype), home, out=data)  # the mean of integers is a float


def all_gather(data: Tensor, group: ProcessGroup | None = None) -> list[Tensor]:
    """Return the ``data`` of every process by rank. All must have one shape."""
    world_size = get_world_size(group)
    if world_size == 1:
        return [data]
    home = get_data_device(data)
    shared = cast_data_device(data, get_comm_device(group)).contiguous()
    gathered = [torch.empty_like(shared) for _ in range(world_size)]
    torch_dist.all_gather(gathered, shared, group)
    return list(cast_data_device(gathered, home))


def gather(data: Tensor, dst: int = 0, group: ProcessGroup | None = None) -> list[Tensor]:
    """Return the ``data`` of every process on ``dst``, an empty list on the others."""
    everything = all_gather(data, group)
    return everything if get_rank(group) == dst else []


def broadcast(data: Tensor, src: int = 0, group: ProcessGroup | None = None) -> None:
    """Give every process the ``data`` of ``src``, in place."""
    if get_world_size(group) <= 1:
        return
    home = get_data_device(data)
    shared = cast_data_device(data, get_comm_device(group)).contiguous()
    torch_dist.broadcast(shared, src, group)
    if get_rank(group) != src:
        cast_data_device(shared, home, data)


def sync_random_seed(group: ProcessGroup | None = None) -> int:
    """Return a random seed that all processes share."""
    return random_seed_everywhere(get_comm_device(group))


def broadcast_object_list(data: list[Any], src: int = 0, group: ProcessGroup | None = None) -> None:
    """Give every process the picklable objects of ``src``, in place."""
    assert isinstance(data, list)
    if get_world_size(group) > 1:
        data[:] = objects.broadcast(data, src, group)


def all_gather_object(data: Any, group: ProcessGroup | None = None) -> list[Any]:
    """Return the picklable object of every process, by rank."""
    world_size = get_world_size(group)
    if world_size == 1:
        return [data]
    return objects.all_gather(data, group)


def all_reduce_dict(data: dict[str, Tensor], op: str = "sum", group: ProcessGroup | None = None) -> None:
    """Reduce every tensor of a dict over all processes, in place and with one message."""
    assert isinstance(data, dict)
    if get_world_size(group) <= 1:
        return
    keys = sorted(data)  # so that all processes concatenate in the same order
    # One dtype for all tensors, so that a single message is enough.
    together = torch.cat([data[key].flatten().to(torch.float64) for key in keys])
    all_reduce(together, op=op, group=group)
    parts = torch.split(together, [data[key].numel() for key in keys])
    for key, part in zip(keys, parts, strict=True):
        data[key] = part.view_as(data[key]).to(data[key].dtype)


def all_reduce_params(
    params: list[Tensor] | Generator[Tensor, None, None] | Iterable[Tensor],
    coalesce: bool = True,
    bucket_size_mb: int = -1,
    op: str = "sum",
    group: ProcessGroup | None = None,
) -> None:
    """Reduce many tensors over all processes, in place; with ``coalesce`` packed into few messages."""
    if get_world_size(group) == 1:
        return
    tensors = [param.data for param in params]
    if not coalesce:
        for tensor in tensors:
            all_reduce(tensor, op=op, group=group)
        return
    for bucket in _buckets(tensors, bucket_size_mb):
        flat = torch.cat([tensor.flatten() for tensor in bucket])
        all_reduce(flat, op=op, group=group)
        parts = torch.split(flat, [tensor.numel() for tensor in bucket])
        for tensor, part in zip(bucket, parts, strict=True):
            tensor.copy_(part.view_as(tensor))


def _buckets(tensors: list[Tensor], megabytes: int) -> list[list[Tensor]]:
    """Group tensors of one dtype and device into buckets of at most ``megabytes``; no limit if not positive."""
    most = megabytes * 1024 * 1024 if megabytes > 0 else float("inf")
    buckets: list[list[Tensor]] = []
    open_ones: dict[str, tuple[list[Tensor], int]] = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        bucket, used = open_ones.get(tensor.type(), ([], 0))
        if not bucket or used + size > most:
            bucket, used = [], 0
            buckets.append(bucket)
        bucket.append(tensor)
        open_ones[tensor.type()] = bucket, used + size
    return buckets


def collect_results(results: list[Any], size: int, device: str = "cpu", tmpdir: str | None = None) -> list[Any] | None:
    """Return all ranks' results on rank 0, in the order of the dataset, cut to ``size``; None on the other ranks."""
    if device not in ("cpu", "gpu", "npu"):
        raise NotImplementedError(f"device must be 'cpu', 'gpu' or 'npu', but got {device}")
    if device != "cpu" and tmpdir is not None:
        raise AssertionError(f"tmpdir should be None when device is {device}")
    return collect_results_cpu(results, size, tmpdir) if device == "cpu" else collect_results_gpu(results, size)


def collect_results_gpu(result_part: list[Any], size: int) -> list[Any] | None:
    """Collect the results of all ranks with collectives, see :func:`collect_results`."""
    rank, world_size = get_dist_info()
    if world_size == 1:
        return result_part[:size]
    parts = all_gather_object(result_part)
    return _in_dataset_order(parts, size) if rank == 0 else None


def collect_results_cpu(result_part: list[Any], size: int, tmpdir: str | None = None) -> list[Any] | None:
    """Do the same as :func:`collect_results_gpu`. ``tmpdir`` is accepted but not needed."""
    return collect_results_gpu(result_part, size)


_MISSING = object()


def _in_dataset_order(parts: list[list[Any]], size: int) -> list[Any]:
    """Interleave the results of all ranks, because the sampler deals samples to ranks in turn."""
    dealt = chain.from_iterable(zip_longest(*parts, fillvalue=_MISSING))
    return [result for result in dealt if result is not _MISSING][:size]
