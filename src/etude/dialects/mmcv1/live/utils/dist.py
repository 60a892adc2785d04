"""Several processes: who this one is, starting a group, and means over all ranks."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from etude.dist import reports

F = TypeVar("F", bound=Callable[..., Any])


def get_dist_info() -> tuple[int, int]:
    """Rank of this process and number of processes; ``(0, 1)`` alone."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def init_dist(launcher: str, backend: str = "nccl", **kwargs: Any) -> None:
    """Join the group that ``launcher`` (``pytorch``, ``slurm`` or ``mpi``) has set the environment for."""
    if launcher == "pytorch":
        rank = int(os.environ["RANK"])
    elif launcher == "slurm":
        rank = _slurm_environment(kwargs.pop("port", None))
    elif launcher == "mpi":
        rank = _mpi_environment()
    else:
        raise ValueError(f"launcher is 'pytorch', 'slurm' or 'mpi', got {launcher!r}")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank % torch.cuda.device_count())))
    elif backend == "nccl":
        backend = "gloo"
    dist.init_process_group(backend=backend, **{"timeout": reports.timeout()} | kwargs)


def _slurm_environment(port: int | None) -> int:
    nodes = os.environ["SLURM_NODELIST"]
    first = subprocess.run(["scontrol", "show", "hostname", nodes], capture_output=True, text=True, check=True)
    if port is not None:
        os.environ["MASTER_PORT"] = str(port)
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("MASTER_ADDR", first.stdout.split()[0])
    os.environ["WORLD_SIZE"], os.environ["RANK"] = os.environ["SLURM_NTASKS"], os.environ["SLURM_PROCID"]
    os.environ["LOCAL_RANK"] = os.environ.get("SLURM_LOCALID", "0")
    return int(os.environ["RANK"])


def _mpi_environment() -> int:
    os.environ.setdefault("MASTER_PORT", "29500")
    if "MASTER_ADDR" not in os.environ:
        raise KeyError("the environment variable MASTER_ADDR is needed to start with mpi")
    os.environ["WORLD_SIZE"], os.environ["RANK"] = (
        os.environ["OMPI_COMM_WORLD_SIZE"],
        os.environ["OMPI_COMM_WORLD_RANK"],
    )
    os.environ["LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    return int(os.environ["RANK"])


def master_only(func: F) -> F:
    """Only the first rank calls the function; it returns None on the others."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs) if get_dist_info()[0] == 0 else None

    return wrapper  # type: ignore[return-value]


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
        flat = flat / world_size if flat.is_floating_point() else flat // world_size
        for tensor, mean in zip(group, torch.split(flat, [tensor.numel() for tensor in group]), strict=True):
            tensor.copy_(mean.view_as(tensor))
