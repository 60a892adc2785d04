"""Rank and world size, starting a process group, and moving data between devices."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor
from torch import distributed as torch_dist
from torch.distributed import ProcessGroup

from etude_openmm.shared.live.processes import (
    get_dist_info,
    get_rank,
    get_world_size,
    is_distributed,
    join,
    master_only,
)

__all__ = ["get_dist_info", "get_rank", "get_world_size", "is_distributed", "master_only"]

_LOCAL_PROCESS_GROUP: ProcessGroup | None = None


# -- asking ----------------------------------------------------------------------------------------------------------


def get_default_group() -> ProcessGroup | None:
    """Return the group of all processes."""
    return torch_dist.distributed_c10d._get_default_group() if is_distributed() else None


def get_local_group() -> ProcessGroup | None:
    """Return the group of this node's processes; :func:`init_local_group` makes it."""
    if not is_distributed():
        return None
    if _LOCAL_PROCESS_GROUP is None:
        raise RuntimeError(
            "Local process group is not created, please use `init_local_group` to setup local process group."
        )
    return _LOCAL_PROCESS_GROUP


def get_backend(group: ProcessGroup | None = None) -> str | None:
    """Return the backend of ``group``; None without one."""
    return str(torch_dist.get_backend(group)) if is_distributed() else None


def get_local_size() -> int:
    """Return the number of processes on this node."""
    return torch_dist.get_world_size(get_local_group()) if is_distributed() else 1


def get_local_rank() -> int:
    """Return the rank of this process on its node."""
    return torch_dist.get_rank(get_local_group()) if is_distributed() else 0


def is_main_process(group: ProcessGroup | None = None) -> bool:
    """Return whether this is rank 0."""
    return get_rank(group) == 0


def barrier(group: ProcessGroup | None = None) -> None:
    """Wait for all processes of ``group``."""
    if is_distributed():
        torch_dist.barrier(group)


# -- starting --------------------------------------------------------------------------------------------------------


def infer_launcher() -> str:
    """Return the launcher of this process: ``pytorch``, ``slurm``, ``mpi`` or ``none``."""
    for variable, launcher in (
        ("WORLD_SIZE", "pytorch"),
        ("SLURM_NTASKS", "slurm"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "mpi"),
    ):
        if variable in os.environ:
            return launcher
    return "none"


def init_dist(launcher: str, backend: str = "nccl", init_backend: str = "torch", **kwargs: Any) -> None:
    """Make the process group from the environment that ``launcher`` set, and the group of this node's ranks."""
    timeout = kwargs.get("timeout")
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        try:
            kwargs["timeout"] = datetime.timedelta(seconds=timeout)
        except TypeError as error:
            raise TypeError(
                f"Timeout for distributed training must be provided as timeout in seconds, got {timeout!r}"
            ) from error
    join(launcher, backend, **kwargs)
    if mp.get_start_method(allow_none=True) is None:  # as MMEngine does
        mp.set_start_method("spawn")
    init_local_group(get_rank() // (local := _local_world_size()), local)


def _local_world_size() -> int:
    found = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    return int(found) if found else max(torch.cuda.device_count(), 1) if torch.cuda.is_available() else get_world_size()


def init_local_group(node_rank: int, num_gpus_per_node: int) -> None:
    """Make the group of this node's processes."""
    global _LOCAL_PROCESS_GROUP
    if _LOCAL_PROCESS_GROUP is not None:
        raise AssertionError("the local group has been made already")
    for node in range(-(-get_world_size() // num_gpus_per_node)):
        first = node * num_gpus_per_node
        ranks = list(range(first, min(first + num_gpus_per_node, get_world_size())))
        group = torch_dist.new_group(ranks)
        if node == node_rank:
            _LOCAL_PROCESS_GROUP = group


# -- devices ---------------------------------------------------------------------------------------------------------


def get_data_device(data: Tensor | Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> torch.device:
    """Return the one device that all tensors of ``data`` are on."""
    if isinstance(data, Tensor):
        return data.device
    if not isinstance(data, (Mapping, list, tuple)):
        raise TypeError(f"data should be a Tensor, sequence of tensor or dict, but got {data}")
    items = list(data.values() if isinstance(data, Mapping) else data)
    if not items:
        raise ValueError("data should not be empty")
    first, *others = [get_data_device(item) for item in items]
    if any(other != first for other in others):
        raise ValueError(f"device type in data should be consistent, but got {first} and {others}")
    return first


def get_comm_device(group: ProcessGroup | None = None) -> torch.device:
    """Return the device on which the backend of ``group`` communicates."""
    backend = get_backend(group)
    if backend == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    known = {"hccl": "npu", "cncl": "mlu", "smddp": "cuda", "mccl": "musa"}
    return torch.device(known.get(backend or "", "cpu"))


def cast_data_device(data: Any, device: torch.device | str, out: Any = None) -> Any:
    """Return ``data`` with its tensors on ``device``. With ``out``, they are also copied into that structure."""
    if out is not None:
        if type(data) is not type(out):
            raise TypeError(f"out should be the same type with data, but got {type(out)} and {type(data)}")
        if isinstance(out, set):
            raise TypeError("out should not be a set: its items have no places")
        if not isinstance(data, Tensor) and len(data) != len(out):
            raise ValueError(f"length of data and out should be same, but got {len(data)} and {len(out)}")
    if isinstance(data, Tensor):
        moved = data if get_data_device(data) == torch.device(device) else data.to(device)
        if out is not None:
            out.copy_(moved)
        return moved
    if isinstance(data, Mapping):
        if out is not None and set(out) != set(data):
            raise ValueError("keys of data and out should be equal")
        pairs = {k: cast_data_device(v, device, None if out is None else out[k]) for k, v in data.items()}
        return type(data)(pairs)  # type: ignore[call-arg]
    if isinstance(data, (list, tuple)):
        outs = [None] * len(data) if out is None else out
        items = [cast_data_device(item, device, o) for item, o in zip(data, outs, strict=True)]
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)
    raise TypeError(f"data should be a Tensor, list of tensor or dict, but got {data}")
