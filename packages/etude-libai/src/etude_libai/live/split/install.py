"""Turns global tensors on in this process: makes the meshes of all stages, and gives DTensor the missing rules."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from etude_libai.live import topology
from etude_libai.live.split import boxing, meshes, random, rules

#: They log how fast a collective is on each rank, which users cannot change.
_NOISY = ("torch.distributed.tensor._redistribute", "torch.distributed.tensor._collective_utils")


def install() -> None:
    """Make the meshes for the sizes that were set up, and the rules once."""
    kind = "cuda" if torch.cuda.is_available() and topology.get_dist_util().device_type == "cuda" else "cpu"
    meshes.make_stages(kind)
    _once()


@cache
def _once() -> None:
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    rules.install()
    random.install()
    DTensor.to_local = _to_local  # type: ignore[method-assign]


def _to_local(self: DTensor, *, grad_placements: Any = None) -> torch.Tensor:
    return boxing._to_local(self, grad_placements=grad_placements)
