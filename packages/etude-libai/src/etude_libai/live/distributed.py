"""LiBai's ``dist`` and detectron2's ``comm``: rank, world size, barriers, and gathering over processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as torch_dist

from etude.dist import objects
from etude.dist.jobs import reports
from etude.dist.world import World
from etude.errors import ConfigError, Finding
from etude_libai.lazy.load import try_get_key
from etude_libai.live import topology
from etude_libai.stages import ENDLESS, PIPELINE, TENSOR, misfits, mistakes, sizes_of, stage_of_layers

CUSTOM = "custom_pipeline_stage_id"
_SIZES = (TENSOR, PIPELINE, "pipeline_num_layers", CUSTOM)


def setup_dist_util(cfg: Any, *, zero: int | None = None) -> None:
    """Read the sizes from ``cfg`` (the node ``train.dist``), and write the computed ones back into it.

    ``zero`` is the stage of ZeRO. Without it, it is that of ``train.zero_optimization`` of the same config.
    """
    zero = _zero_stage(cfg) if zero is None else zero
    world = World.from_environment()
    given = {key: try_get_key(cfg, key) for key in _SIZES}
    wrong = [*mistakes(given, {}), *misfits(given, world.size)]
    if wrong:
        raise ConfigError([Finding("", f"train.dist.{message}", hint) for _, message, hint in wrong])
    sizes = sizes_of(given, world.size)
    if zero > 2 and sizes.pipeline > 1:
        hint = "set train.zero_optimization.stage to 1 or 2, or pipeline_parallel_size to 1"
        raise ConfigError("train.zero_optimization.stage=3 does not go with pipeline stages", hint=hint)
    saved = try_get_key(cfg, "data_parallel_size")
    if saved not in (None, 1, sizes.data):
        logging.getLogger("libai.utils.distributed").warning(
            f"the config says data_parallel_size={saved}, this run has {sizes.data}"
        )
    stages = stage_of_layers(given["pipeline_num_layers"] or ENDLESS, sizes.pipeline, given[CUSTOM])
    util = topology.DistUtil(
        world,
        try_get_key(cfg, "device_type", default="cuda"),
        sizes,
        stages if sizes.pipeline > 1 else (),
        zero if sizes.data > 1 else 0,
    )
    cfg.tensor_parallel_size, cfg.pipeline_parallel_size = sizes.tensor, sizes.pipeline
    cfg.data_parallel_size = sizes.data
    cfg.num_nodes, cfg.num_gpus_per_node = util.num_nodes, util.num_gpus_per_node
    if sizes.pipeline > 1:
        cfg.auto_pipeline_stage_id = stage_of_layers(given["pipeline_num_layers"], sizes.pipeline)
        cfg.actual_pipeline_stage_id = stages
    elif given["pipeline_num_layers"] is None:
        cfg.pipeline_num_layers = ENDLESS
    cfg.device_type = util.device_type
    join(world)
    topology.use(util)
    if util.splits:
        from etude_libai.live.split import install

        install.install()


def _zero_stage(cfg: Any) -> int:
    """Return the stage of ZeRO in the config that the node ``train.dist`` belongs to; 0 without it."""
    train = getattr(cfg, "_get_parent", lambda: None)()
    if train is None or not try_get_key(train, "zero_optimization.enabled", default=False):
        return 0
    return int(try_get_key(train, "zero_optimization.stage", default=1) or 1)


def convert_to_distributed_default_setting(module: Any) -> Any:
    """Return a tensor or module with every plain tensor global: whole on all ranks of the first layer."""
    if not topology.splits():
        return module
    from etude_libai.live.split import boxing

    return boxing.by_default(module)


def join(world: World) -> None:
    """Join the process group, if there are several processes."""
    if world.size > 1 and not torch_dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch_dist.init_process_group(backend, timeout=reports.timeout())


def synchronize() -> None:
    """Wait for all processes."""
    if torch_dist.is_available() and torch_dist.is_initialized():
        torch_dist.barrier()


def broadcast_py_object(obj: Any, src: int = 0) -> Any:
    """Return the object of process ``src`` in all processes."""
    if not (torch_dist.is_available() and torch_dist.is_initialized()):
        return obj
    return objects.broadcast(obj, src)


def all_gather(data: Any, group: Any = None) -> list[Any]:
    """Return the objects of all processes, in all processes."""
    if topology.get_world_size() == 1 or not torch_dist.is_initialized():
        return [data]
    return objects.all_gather(data, group)


def gather_batch(fields: Any) -> Any:
    """Concatenate the fields of all processes' batches in order of ranks; for one process return them as they are."""
    if topology.get_world_size() == 1 or not isinstance(fields, Mapping):
        return fields
    if topology.splits():
        from etude_libai.live.split import meshes

        return {name: meshes.whole(value).cpu() if is_tensor(value) else value for name, value in fields.items()}
    held = all_gather({name: value.detach().cpu() if is_tensor(value) else value for name, value in fields.items()})
    return {
        name: torch.cat([part[name] for part in held]) if is_tensor(value) and value.ndim > 0 else value
        for name, value in fields.items()
    }


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def ttol(tensor: Any, pure_local: bool = False, device: str = "cuda", ranks: Any = None) -> Any:
    """Return a global tensor as a local one: whole, or with ``pure_local`` the piece of this process."""
    if not topology.splits():
        return tensor
    from etude_libai.live.split import boxing, meshes

    return boxing.to_local(tensor) if pure_local else meshes.whole(tensor)


def tensor_to_rank0(tensor: Any, device: str = "cuda", to_local: bool = False) -> Any:
    """Return the tensor whole. OneFlow sends it to rank 0; here all processes have it."""
    return ttol(tensor)


def tton(tensor: Any, local_only: bool = False, ranks: Any = None) -> Any:
    """Return a tensor as a numpy array."""
    return ttol(tensor, local_only).detach().cpu().numpy()


# -- what only detectron2 has ------------------------------------------------------------------------------------------


def get_local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", topology.get_world_size()))


def gather(data: Any, dst: int = 0, group: Any = None) -> list[Any]:
    """Return the objects of all processes in process ``dst``; elsewhere an empty list."""
    gathered = all_gather(data, group)
    return gathered if topology.get_rank() == dst else []


def shared_random_seed() -> int:
    """Return a random number that is the same in all processes."""
    return int(all_gather(int(np.random.randint(2**31)))[0])


def reduce_dict(input_dict: dict[str, torch.Tensor], average: bool = True) -> dict[str, torch.Tensor]:
    """Return every value summed (or averaged) over processes. Only the result on rank 0 is complete."""
    if topology.get_world_size() == 1 or not torch_dist.is_initialized():
        return input_dict
    names = sorted(input_dict)
    values = torch.stack([input_dict[name] for name in names])
    torch_dist.reduce(values, dst=0)
    if average and topology.is_main_process():
        values = values / topology.get_world_size()
    return dict(zip(names, values, strict=True))
