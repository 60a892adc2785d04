"""Small helpers that users import from ``mmcv.utils`` and ``mmcls.core.utils``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from etude_openmm.mmcv1.live.utils.environment import init_random_seed
from etude_openmm.shared.live.processes import worker_init_fn as worker_init_fn

#: Devices that Étude has no special code for.
IS_IPU_AVAILABLE = IS_MLU_AVAILABLE = IS_NPU_AVAILABLE = IS_MPS_AVAILABLE = False
PoolDataLoader = DataLoader
sync_random_seed = init_random_seed


def get_device() -> str:
    """Return the type of device that this process can train on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def jit(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Return the function unchanged: this decorator only has a meaning for another framework (Parrots)."""
    return func if func is not None else lambda function: function


def skip_no_elena(func: Callable[..., Any]) -> Callable[..., Any]:
    return func


def multi_apply(func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], ...]:
    """Call ``func`` on every item of the lists, and return one list per element of its results."""
    return tuple(map(list, zip(*map(partial(func, **kwargs), *args), strict=False)))


def load_json_log(json_log: str) -> dict[int, dict[str, list[Any]]]:
    """Return the values of a ``.log.json`` as epoch → name → values. Lines without an epoch are skipped."""
    epochs: dict[int, dict[str, list[Any]]] = {}
    with open(json_log, encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "epoch" in line:
                values = epochs.setdefault(line.pop("epoch"), defaultdict(list))
                for name, value in line.items():
                    values[name].append(value)
    return epochs
