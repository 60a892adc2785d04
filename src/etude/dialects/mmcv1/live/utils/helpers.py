"""Small things that modules import from ``mmcv.utils`` and ``mmcls.core.utils``."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from etude.dialects.mmcv1.live.utils.environment import init_random_seed

#: Devices that have no part of their own here.
IS_IPU_AVAILABLE = IS_MLU_AVAILABLE = IS_NPU_AVAILABLE = IS_MPS_AVAILABLE = False
PoolDataLoader = DataLoader
sync_random_seed = init_random_seed


def worker_init_fn(worker_id: int, num_workers: int, rank: int, seed: int) -> None:
    """Seed a data worker: every worker of every rank differently."""
    own = num_workers * rank + worker_id + seed
    np.random.seed(own)
    random.seed(own)
    torch.manual_seed(own)


def get_device() -> str:
    """Return the kind of device that this process can train on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def jit(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Return a decorator that means something to another framework only: the function stays as it is."""
    return func if func is not None else lambda function: function


def skip_no_elena(func: Callable[..., Any]) -> Callable[..., Any]:
    return func


def multi_apply(func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], ...]:
    """``func`` on every item of the lists; one list per part of its results."""
    return tuple(map(list, zip(*map(partial(func, **kwargs), *args), strict=False)))


def load_json_log(json_log: str) -> dict[int, dict[str, list[Any]]]:
    """Return the lines of a ``.log.json`` with an epoch: epoch → name → values."""
    epochs: dict[int, dict[str, list[Any]]] = {}
    with open(json_log, encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "epoch" in line:
                values = epochs.setdefault(line.pop("epoch"), defaultdict(list))
                for name, value in line.items():
                    values[name].append(value)
    return epochs
