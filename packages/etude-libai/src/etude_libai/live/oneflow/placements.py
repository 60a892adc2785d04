"""OneFlow's placements and sbp signatures.

With tensor or pipeline parallelism, or ZeRO, they say which ranks have a tensor and how it is split. Else a placement
means this process's device and a signature nothing: a process holds whole tensors, several train data parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from etude_libai.live import topology


class placement:
    """``flow.placement("cuda", ranks=[0])``: a type of device, and the ranks that hold a part."""

    def __init__(self, type: str = "cpu", ranks: Any = (0,)) -> None:
        self.type = type
        self._ranks = ranks  # unconverted: torch.compile cannot trace np.asarray

    @property
    def ranks(self) -> Any:
        return np.asarray(self._ranks)

    @staticmethod
    def all(type: str) -> placement:
        return placement(type, tuple(range(topology.get_world_size())))

    @property
    def device(self) -> torch.device:
        """Return the device of this process; the CPU if there is no CUDA."""
        if self.type == "cuda" and not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device(self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, placement) and self.type == other.type and np.array_equal(self.ranks, other.ranks)

    def __hash__(self) -> int:
        return hash((self.type, self.ranks.tobytes()))

    def __repr__(self) -> str:
        return f"oneflow.placement(type={self.type!r}, ranks={self.ranks.tolist()})"


@dataclass(frozen=True)
class sbp:
    """How a tensor is split: ``flow.sbp.broadcast``, ``flow.sbp.split(0)``, ``flow.sbp.partial_sum``."""

    name: str

    broadcast: ClassVar[sbp]
    partial_sum: ClassVar[sbp]

    def __call__(self) -> sbp:
        return self

    @staticmethod
    def split(dim: int) -> sbp:
        return sbp(f"split({dim})")

    def __repr__(self) -> str:
        return f"oneflow.sbp.{self.name}"


sbp.broadcast, sbp.partial_sum = sbp("broadcast"), sbp("partial_sum")
sbp.sbp = sbp  # type: ignore[attr-defined]


def get_nd_sbp(sbp_list: Any) -> list[sbp]:
    """Return the part of a signature for data and tensor parallelism that the sizes of the run need."""
    assert isinstance(sbp_list, list), f"sbp_list must be a list, not {sbp_list!r}"
    assert len(sbp_list) == 2, f"sbp_list must hold two signatures, not {sbp_list!r}"
    assert all(isinstance(item, sbp) for item in sbp_list), f"sbp_list must hold signatures, not {sbp_list!r}"
    util = topology.get_dist_util()
    if not util.splits:
        return [sbp.broadcast]
    if util.is_data_model_parallel():
        return sbp_list
    return sbp_list[:1] if util.is_data_parallel() else sbp_list[1:]


def get_hidden_sbp() -> list[sbp]:
    """Return the signature of hidden states."""
    return get_nd_sbp([sbp.split(0), sbp.broadcast])


def same_sbp(lhs_sbp: Any, rhs_sbp: Any) -> bool:
    """Return whether two signatures are the same."""
    assert len(lhs_sbp) == len(rhs_sbp), f"{lhs_sbp} and {rhs_sbp} are of different lengths"
    return all(left == right for left, right in zip(lhs_sbp, rhs_sbp, strict=True))


def get_layer_placement(layer_idx: int, device_type: str | None = None) -> placement:
    """Return the placement of a layer: the ranks of its stage."""
    util = topology.get_dist_util()
    wanted = device_type or util.device_type
    kind = "cpu" if wanted == "cuda" and not torch.cuda.is_available() else wanted
    return placement(kind, util.get_layer_ranks(layer_idx)) if util.splits else placement.all(kind)


def all_device_placement(type: str) -> placement:
    return placement.all(type)
