"""One seed for all generators."""

from __future__ import annotations

import os
import random

import numpy as np
import torch
import torch.distributed as dist

from etude.dialects.mmcv1.live.utils.dist import get_dist_info


def set_random_seed(seed: int, deterministic: bool = False, use_rank_shift: bool = False) -> None:
    """Seed Python's, numpy's and torch's generators; ``deterministic`` makes cuDNN repeatable too."""
    if use_rank_shift:
        seed += get_dist_info()[0]
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)  # for processes that start later
    _deterministic(deterministic)


def _deterministic(deterministic: bool) -> None:
    if deterministic:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def init_random_seed(seed: int | None = None, device: str = "cuda") -> int:
    """``seed``, or a random one that all ranks agree on."""
    if seed is not None:
        return seed
    rank, world_size = get_dist_info()
    drawn = int(np.random.randint(2**31))
    if world_size == 1:
        return drawn
    shared = torch.tensor(drawn if rank == 0 else 0, dtype=torch.int32)
    if torch.cuda.is_available():
        shared = shared.to("cuda")
    dist.broadcast(shared, src=0)
    return int(shared.item())
