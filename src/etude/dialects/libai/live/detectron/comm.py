"""detectron2's ``comm``: rank, world size, and gathering over processes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
import torch.distributed as torch_dist

from etude.dialects.libai.live.distributed import (
    all_gather,
    get_local_rank,
    get_rank,
    get_world_size,
    is_main_process,
    synchronize,
)

__all__ = [
    "all_gather", "gather", "get_local_rank", "get_local_size", "get_rank", "get_world_size", "is_main_process",
    "reduce_dict", "shared_random_seed", "synchronize",
]  # fmt: skip


def get_local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", get_world_size()))


def gather(data: Any, dst: int = 0, group: Any = None) -> list[Any]:
    """Return the objects of all processes in process ``dst``; elsewhere an empty list."""
    gathered = all_gather(data, group)
    return gathered if get_rank() == dst else []


def shared_random_seed() -> int:
    """Return a random number that is the same in all processes."""
    return int(all_gather(int(np.random.randint(2**31)))[0])


def reduce_dict(input_dict: dict[str, torch.Tensor], average: bool = True) -> dict[str, torch.Tensor]:
    """Return every value summed (or averaged) over processes. Only the result on rank 0 is complete."""
    if get_world_size() == 1 or not torch_dist.is_initialized():
        return input_dict
    names = sorted(input_dict)
    values = torch.stack([input_dict[name] for name in names])
    torch_dist.reduce(values, dst=0)
    if average and is_main_process():
        values = values / get_world_size()
    return dict(zip(names, values, strict=True))
