"""Starting a script's ``main`` in as many processes as asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch


def launch(
    main_func: Callable[..., Any],
    num_gpus_per_machine: int,
    num_machines: int = 1,
    machine_rank: int = 0,
    dist_url: str | None = None,
    args: tuple[Any, ...] = (),
    timeout: Any = None,
) -> None:
    """Call ``main_func(*args)`` here, or in one new process per device when there are several."""
    world = num_machines * num_gpus_per_machine
    if world <= 1:
        main_func(*args)
        return
    if dist_url in (None, "auto"):
        assert num_machines == 1, "dist_url=auto not supported in multi-machine jobs."
        dist_url = f"tcp://127.0.0.1:{_free_port()}"
    torch.multiprocessing.spawn(  # type: ignore[attr-defined,no-untyped-call]
        _worker,
        nprocs=num_gpus_per_machine,
        args=(main_func, world, num_gpus_per_machine, machine_rank, dist_url, args),
        daemon=False,
    )


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _worker(
    local_rank: int,
    main_func: Callable[..., Any],
    world: int,
    per_machine: int,
    machine_rank: int,
    dist_url: str,
    args: tuple[Any, ...],
) -> None:
    rank = machine_rank * per_machine + local_rank
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(per_machine),
    }
    torch.distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo", init_method=dist_url, world_size=world, rank=rank
    )
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    try:
        main_func(*args)
    finally:
        torch.distributed.destroy_process_group()
