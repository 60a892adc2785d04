"""Wraps a model for several processes: DDP, or FSDP2 on a mesh. torch does the work; this decides what is wrapped
how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from etude.dist import shards
from etude.dist.world import World
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.plan import Parallel

_CARRIER = "_etude_carrier"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@record
class Wrapped:
    """``called`` computes losses for training; ``model`` is the module itself, whose names are those of checkpoints."""

    model: nn.Module
    called: Any
    #: Whether the next backward pass sends gradients.
    sync: Callable[[bool], None]
    #: Whether the engine has to make means of gradients itself, before they are used.
    by_hand: bool = False
    #: A parameter beside the model's, whose gradient travels with theirs: see :class:`~etude.dist.peers.Peers`.
    carrier: nn.Parameter | None = None


def strategy_of(parallel: Parallel, world: World) -> str:
    """Return the strategy that ``auto`` stands for here; a process alone needs none of them."""
    if not world.is_many:
        return "none"
    return "ddp" if parallel.strategy == "auto" else parallel.strategy


def wrap(model: nn.Module, parallel: Parallel, world: World, device: torch.device, *, by_hand: bool = False) -> Wrapped:
    """Wrap the model as ``parallel`` asks. Call it on every rank, before optimizers are made.

    ``by_hand`` is for updates of your own, which may call parts of the model without DDP's knowledge.
    """
    strategy = strategy_of(parallel, world)
    parallel.require_fitting(world.size, local=world.local_size)
    if strategy == "none":
        return Wrapped(model, model, lambda last: None)
    require_trainable(model, parallel)
    if by_hand and strategy != "ddp":
        raise ConfigError(f"an update of your own cannot be used with {strategy}", at=str(parallel.at), hint="ddp can")
    if by_hand:  # without DDP, which would do this when it is made
        for tensor in (*model.parameters(), *model.buffers()):
            torch.distributed.broadcast(tensor.detach(), src=0)
        return Wrapped(model, model, lambda last: None, by_hand=True)
    if strategy == "ddp":
        return _data_parallel(model, parallel, device)
    return _sharded(model, parallel, world, device, hybrid=strategy == "hsdp")


def _data_parallel(model: nn.Module, parallel: Parallel, device: torch.device) -> Wrapped:
    if parallel.compression == "bf16" and device.type == "cpu":
        raise ConfigError("parallel.compression: bf16 needs a GPU", at=str(parallel.at), hint="write fp16, or powersgd")
    carrier = _carrier(parallel, device)
    if carrier is not None:
        model.register_parameter(_CARRIER, carrier)
    made = nn.parallel.DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        find_unused_parameters=parallel.find_unused,
        static_graph=parallel.static_graph,
        gradient_as_bucket_view=parallel.bucket_view,
        bucket_cap_mb=parallel.bucket_mb,
    )
    if carrier is not None:
        delattr(model, _CARRIER)  # DDP keeps it; nothing else is to see it
    _compress(made, parallel.compression)

    def sync(last: bool) -> None:
        made.require_backward_grad_sync = last

    return Wrapped(model, made, sync, carrier=carrier)


def _carrier(parallel: Parallel, device: torch.device) -> nn.Parameter | None:
    """Add a parameter for the votes of ranks, if DDP accepts a gradient without a graph, sends it as it is, and the
    CPU can read it without waiting for a device."""
    if device.type != "cpu" or parallel.find_unused or parallel.static_graph or parallel.compression != "none":
        return None
    return nn.Parameter(torch.zeros(5))


def _compress(made: nn.parallel.DistributedDataParallel, how: str) -> None:
    if how == "none":
        return
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if how == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
        made.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return
    hook = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}[how]
    made.register_comm_hook(None, hook)


def _sharded(model: nn.Module, parallel: Parallel, world: World, device: torch.device, *, hybrid: bool) -> Wrapped:
    if parallel.offload and device.type == "cpu":
        raise ConfigError("parallel.offload keeps parameters in host memory: it needs a GPU", at=str(parallel.at))
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    options: dict[str, Any] = {
        "mesh": _mesh(parallel, world, device, hybrid=hybrid),
        "reshard_after_forward": parallel.reshard,
        "offload_policy": CPUOffloadPolicy() if parallel.offload else OffloadPolicy(),
    }
    if parallel.precision != "fp32":
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=_DTYPES[parallel.precision], reduce_dtype=_DTYPES[parallel.reduce]
        )
    for module in _blocks(model, parallel):
        fully_shard(module, **options)
    fully_shard(model, **options)
    shards.remember(model)
    return Wrapped(model, model, _Switch(model))


class _Switch:
    """Turns the reduction of gradients on and off; setting the same value again costs nothing."""

    def __init__(self, model: Any) -> None:
        self._model, self._on = model, True

    def __call__(self, on: bool) -> None:
        if on != self._on:
            self._on = on
            self._model.set_requires_gradient_sync(on)


def _mesh(parallel: Parallel, world: World, device: torch.device, *, hybrid: bool) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    if not hybrid:
        return init_device_mesh(device.type, (world.size,), mesh_dim_names=("shard",))
    copies_and_shards = parallel.mesh(world.size, local=world.local_size)
    return init_device_mesh(device.type, copies_and_shards, mesh_dim_names=("copy", "shard"))


def _blocks(model: nn.Module, parallel: Parallel) -> list[nn.Module]:
    """Return the modules that are sharded on their own, innermost first: those of the named classes, or large ones."""
    if parallel.wrap:
        return list(reversed(of_classes(model, parallel.wrap, "parallel.wrap", at=str(parallel.at))))
    if not parallel.min_params:
        return []
    own = [module for module in model.modules() if module is not model and any(True for _ in module.parameters(False))]
    large = [module for module in own if sum(p.numel() for p in module.parameters(False)) >= parallel.min_params]
    return large[::-1]  # modules() gives the outer one first; FSDP2 needs the inner one sharded before it


def of_classes(model: nn.Module, names: Iterable[str], key: str, *, at: str) -> list[nn.Module]:
    """Return the modules below ``model`` whose class name is in ``names``; a name without a match is a mistake."""
    wanted, found = set(names), []
    for module in model.modules():
        if module is not model and type(module).__name__ in wanted:
            found.append(module)
    missing = wanted - {type(module).__name__ for module in found}
    if missing:
        known = {type(module).__name__ for module in model.modules() if module is not model}
        name = sorted(missing)[0]
        raise ConfigError(f"{key}: the model has no module of a class {name!r}", at=at, hint=suggest(name, known))
    return found


def require_trainable(model: nn.Module, parallel: Parallel) -> None:
    if not any(param.requires_grad for param in model.parameters()):
        raise ConfigError(
            "no parameter of the model is trained, so there is nothing to do together", at=str(parallel.at)
        )


def require_fitting(optimizers: dict[str, torch.optim.Optimizer], strategy: str, *, at: str) -> None:
    """Refuse optimizers that do not work with sharded parameters, or not with several ranks at all."""
    import inspect

    for optimizer in optimizers.values():
        name = type(optimizer).__name__
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise ConfigError(f"{name} searches with losses of its own, which differ from rank to rank", at=at)
        if strategy in ("fsdp", "hsdp"):
            fused = any(group.get("fused") for group in optimizer.param_groups)
            if name == "Adafactor" or (name == "SGD" and fused):
                what = "fused SGD" if fused else name
                raise ConfigError(f"{what} does not work with parameters in shards (fsdp)", at=at, hint="ddp does")
