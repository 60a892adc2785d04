"""The parallel sizes of a run, and this process's place in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etude.dist.world import World
from etude_libai.stages import Sizes


@dataclass
class DistUtil:
    """The parallel sizes of a run, and where each layer is.

    Tensors are split over processes (``splits``) only if a size other than the data-parallel one is above 1, or with
    ZeRO. Else every process has a whole model, and DDP averages the gradients.
    """

    world: World
    device_type: str = "cuda"
    sizes: Sizes = field(default_factory=Sizes)
    layer_stages: Sequence[int] = ()
    #: The stage of ZeRO; 0 without it.
    zero: int = 0

    @property
    def splits(self) -> bool:
        return self.sizes.tensor > 1 or self.sizes.pipeline > 1 or self.zero > 0

    @property
    def world_size(self) -> int:
        return self.world.size

    @property
    def num_nodes(self) -> int:
        return max(1, self.world.size // int(os.environ.get("LOCAL_WORLD_SIZE", self.world.size)))

    @property
    def num_gpus_per_node(self) -> int:
        return self.world.size // self.num_nodes

    @property
    def tensor_parallel_size(self) -> int:
        return self.sizes.tensor

    #: LiBai's name of the same.
    model_parallel_size = tensor_parallel_size

    @property
    def pipeline_parallel_size(self) -> int:
        return self.sizes.pipeline

    @property
    def data_parallel_size(self) -> int:
        return self.sizes.data

    @property
    def data_parallel_rank(self) -> int:
        return self.sizes.share(self.world.rank)

    @property
    def parallel_hierarchy(self) -> tuple[int, int] | None:
        return (self.sizes.data, self.sizes.tensor) if self.is_data_model_parallel() else None

    def is_data_parallel(self) -> bool:
        return self.sizes.data > 1

    def is_tensor_model_parallel(self) -> bool:
        return self.sizes.tensor > 1

    def is_pipeline_model_parallel(self) -> bool:
        return self.sizes.pipeline > 1

    def is_data_model_parallel(self) -> bool:
        return self.is_tensor_model_parallel() and self.is_data_parallel()

    def get_layer_ranks(self, layer_idx: int) -> Any:
        """Return the ranks that have a layer; with data and tensor parallelism in rows of tensor-parallel ones."""
        ranks = self.sizes.ranks(self.get_layer_stage_id(layer_idx))
        return np.asarray(ranks).reshape(self.parallel_hierarchy).tolist() if self.parallel_hierarchy else ranks

    def get_layer_stage_id(self, layer_idx: int) -> int:
        return self.layer_stages[layer_idx] if self.layer_stages else 0

    def set_device_type(self, device_type: str) -> None:
        self.device_type = device_type


_util: DistUtil | None = None


def get_dist_util() -> DistUtil:
    global _util
    if _util is None:
        world = World.from_environment()
        _util = DistUtil(world, sizes=Sizes(data=world.size))
    return _util


def use(util: DistUtil) -> None:
    """Set the sizes of the run."""
    global _util
    _util = util


def splits() -> bool:
    """Return whether tensors are split over processes, so that global tensors mean what they mean in OneFlow."""
    return get_dist_util().splits


def get_rank() -> int:
    return get_dist_util().world.rank


def get_local_rank() -> int:
    return get_dist_util().world.local_rank


def get_world_size() -> int:
    return get_dist_util().world.size


def get_num_nodes() -> int:
    return get_dist_util().num_nodes


def is_main_process() -> bool:
    return get_rank() == 0


def is_last_process() -> bool:
    return get_rank() == get_world_size() - 1


def get_data_parallel_rank() -> int:
    return get_dist_util().data_parallel_rank


def get_data_parallel_size() -> int:
    return get_dist_util().data_parallel_size


def get_tensor_parallel_size() -> int:
    return get_dist_util().tensor_parallel_size


def get_pipeline_parallel_size() -> int:
    return get_dist_util().pipeline_parallel_size


def set_device_type(device_type: str) -> None:
    """Set the type of device on which layers are made."""
    get_dist_util().set_device_type(device_type)
