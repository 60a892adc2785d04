"""Rank and world size, and joining a process group that torchrun, srun or mpirun has started."""

from __future__ import annotations

import functools
import os
import random
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import distributed
from torch.distributed import ProcessGroup

from etude.dist import objects
from etude.dist.jobs import reports
from etude.dist.world import first_host

F = TypeVar("F", bound=Callable[..., Any])
#: Launcher → its environment variables for rank, world size and local rank.
_VARIABLES = {
    "pytorch": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    "mpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
}


def is_distributed() -> bool:
    """Return whether the process group is initialised."""
    return distributed.is_available() and distributed.is_initialized()


def get_rank(group: ProcessGroup | None = None) -> int:
    """Return the rank of this process."""
    return distributed.get_rank(group) if is_distributed() else 0


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Return the number of processes."""
    return distributed.get_world_size(group) if is_distributed() else 1


def get_dist_info(group: ProcessGroup | None = None) -> tuple[int, int]:
    """Return rank and world size; ``(0, 1)`` without a process group."""
    return get_rank(group), get_world_size(group)


def master_only(func: F) -> F:
    """Let only rank 0 run ``func``; the others return None."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs) if get_rank() == 0 else None

    return wrapper  # type: ignore[return-value]


def join(launcher: str, backend: str, *, port: int | None = None, **kwargs: Any) -> None:
    """Make the process group from the environment that ``launcher`` (``pytorch``, ``slurm`` or ``mpi``) set.

    ``nccl`` on a machine without a GPU becomes ``gloo``, so that a run on CPUs starts.
    """
    if launcher not in _VARIABLES:
        raise ValueError(f"Invalid launcher type: {launcher!r}; it is 'pytorch', 'slurm' or 'mpi'")
    _announce(launcher, port)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    elif backend == "nccl":
        backend = "gloo"
    distributed.init_process_group(backend=backend, **{"timeout": reports.timeout()} | kwargs)


def _announce(launcher: str, port: int | None) -> None:
    """Set torchrun's variables, which torch reads, from those of ``launcher``."""
    rank, size, local_rank = _VARIABLES[launcher]
    os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ[rank], os.environ[size]
    default = int(os.environ["RANK"]) % max(torch.cuda.device_count(), 1)
    os.environ["LOCAL_RANK"] = os.environ.get(local_rank, str(default))
    if port is not None:
        os.environ["MASTER_PORT"] = str(port)
    if launcher == "pytorch":
        return
    os.environ.setdefault("MASTER_PORT", "29500")
    if launcher == "slurm":
        os.environ.setdefault("MASTER_ADDR", first_host(os.environ["SLURM_NODELIST"]))
    elif "MASTER_ADDR" not in os.environ:
        raise KeyError("the environment variable MASTER_ADDR is not set; mpirun does not set it: give the first host")


def random_seed_everywhere(device: torch.device) -> int:
    """Draw a seed below 2**31; all ranks get that of rank 0."""
    # As in the originals, every rank draws, although one number is used: their generators move alike.
    seed = np.random.randint(2**31)
    if get_world_size() == 1:
        return int(seed)
    shared = torch.tensor(seed if get_rank() == 0 else 0, dtype=torch.int64, device=device)
    distributed.broadcast(shared, src=0)
    return int(shared.item())


def gather_object(data: Any, dst: int = 0, group: ProcessGroup | None = None) -> list[Any] | None:
    """Return the picklable object of every process on ``dst``, None on the others."""
    world_size = get_world_size(group)
    if world_size == 1:
        return [data]
    return objects.gather(data, dst, group)


def worker_init_fn(
    worker_id: int, num_workers: int, rank: int, seed: int, disable_subprocess_warning: bool = False
) -> None:
    """Seed numpy, random and torch of a worker, differently for every worker of every rank."""
    worker_seed = num_workers * rank + worker_id + seed
    np.random.seed(worker_seed)
    random.seed(worker_seed)
    torch.manual_seed(worker_seed)
    if disable_subprocess_warning and worker_id != 0:
        warnings.simplefilter("ignore")
