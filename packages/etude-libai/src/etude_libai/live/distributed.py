"""LiBai's ``dist`` and detectron2's ``comm``: rank, world size, barriers, and gathering over processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as torch_dist

from etude.dist import reports
from etude.dist.world import World
from etude.errors import ConfigError
from etude_libai.lazy.load import try_get_key


@dataclass
class DistUtil:
    """The parallel sizes of a run. Only data parallelism is supported, so all others are 1."""

    world: World
    device_type: str = "cuda"

    tensor_parallel_size: ClassVar[int] = 1
    pipeline_parallel_size: ClassVar[int] = 1
    model_parallel_size: ClassVar[int] = 1
    parallel_hierarchy: ClassVar[tuple[int, int] | None] = None

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
    def data_parallel_size(self) -> int:
        return self.world.size

    @property
    def data_parallel_rank(self) -> int:
        return self.world.rank

    def is_data_parallel(self) -> bool:
        return self.world.size > 1

    def is_tensor_model_parallel(self) -> bool:
        return False

    def is_pipeline_model_parallel(self) -> bool:
        return False

    def is_data_model_parallel(self) -> bool:
        return False

    def get_layer_ranks(self, layer_idx: int) -> list[int]:
        """Return all ranks: every process has every layer."""
        return list(range(self.world.size))

    def get_layer_stage_id(self, layer_idx: int) -> int:
        return 0

    def set_device_type(self, device_type: str) -> None:
        self.device_type = device_type


_util: DistUtil | None = None


def get_dist_util() -> DistUtil:
    global _util
    if _util is None:
        _util = DistUtil(World.from_environment())
    return _util


def setup_dist_util(cfg: Any) -> None:
    """Read the sizes from ``cfg`` (the node ``train.dist``), and write the computed ones back into it."""
    global _util
    world = World.from_environment()
    for key in ("tensor_parallel_size", "pipeline_parallel_size"):
        wanted = try_get_key(cfg, key, default=1)
        if wanted is not None and wanted > 1:
            raise ConfigError(
                f"train.dist.{key}={wanted}: Étude trains with data-parallel processes only",
                hint=f"set train.dist.{key}=1 and start one process per device",
            )
        cfg[key] = 1
    saved = try_get_key(cfg, "data_parallel_size")
    if saved not in (None, 1, world.size):
        logging.getLogger("libai.utils.distributed").warning(
            f"the config says data_parallel_size={saved}, this run has {world.size} processes"
        )
    _util = DistUtil(world, try_get_key(cfg, "device_type", default="cuda"))
    cfg.data_parallel_size = world.size
    cfg.num_nodes, cfg.num_gpus_per_node = _util.num_nodes, _util.num_gpus_per_node
    if try_get_key(cfg, "pipeline_num_layers") is None:
        # LiBai's value without a pipeline.
        cfg.pipeline_num_layers = 10000
    cfg.device_type = _util.device_type
    join(world)


def convert_to_distributed_default_setting(module: Any) -> Any:
    """Return the module unchanged. OneFlow distributes it here; torch modules are on their device already."""
    return module


def join(world: World) -> None:
    """Join the process group, if there are several processes."""
    if world.size > 1 and not torch_dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch_dist.init_process_group(backend, timeout=reports.timeout())


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
    return 1


def get_pipeline_parallel_size() -> int:
    return 1


def set_device_type(device_type: str) -> None:
    """Set the type of device on which layers are made."""
    get_dist_util().set_device_type(device_type)


def synchronize() -> None:
    """Wait for all processes."""
    if torch_dist.is_available() and torch_dist.is_initialized():
        torch_dist.barrier()


def broadcast_py_object(obj: Any, src: int = 0) -> Any:
    """Return the object of process ``src`` in all processes."""
    if not (torch_dist.is_available() and torch_dist.is_initialized()):
        return obj
    held = [obj]
    torch_dist.broadcast_object_list(held, src=src)
    return held[0]


def all_gather(data: Any, group: Any = None) -> list[Any]:
    """Return the objects of all processes, in all processes."""
    if get_world_size() == 1 or not torch_dist.is_initialized():
        return [data]
    held: list[Any] = [None] * get_world_size()
    torch_dist.all_gather_object(held, data, group=group)
    return held


def gather_batch(fields: Any) -> Any:
    """Concatenate the fields of all processes' batches in order of ranks; for one process return them as they are."""
    if get_world_size() == 1 or not isinstance(fields, Mapping):
        return fields
    held = all_gather(
        {name: value.detach().cpu() if isinstance(value, torch.Tensor) else value for name, value in fields.items()}
    )
    return {
        name: torch.cat([part[name] for part in held]) if isinstance(value, torch.Tensor) and value.ndim > 0 else value
        for name, value in fields.items()
    }


def ttol(tensor: Any, pure_local: bool = False, device: str = "cuda", ranks: Any = None) -> Any:
    """Return the tensor unchanged. OneFlow turns a global tensor into a local one; here every tensor is local."""
    return tensor


def tensor_to_rank0(tensor: Any, device: str = "cuda", to_local: bool = False) -> Any:
    """Return the tensor unchanged. OneFlow sends a global tensor to rank 0; here every process has all of it."""
    return tensor


def tton(tensor: Any, local_only: bool = False, ranks: Any = None) -> Any:
    """Return a tensor as a numpy array."""
    return tensor.detach().cpu().numpy()


# -- what only detectron2 has ------------------------------------------------------------------------------------------


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
