"""Wraps a model for several processes: splits it, then DDP, or FSDP2 on a mesh. torch does the work; this decides what
is wrapped how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from etude import torch_private
from etude.dist.layout import shards, stages
from etude.dist.layout.mesh import AXES, Mesh
from etude.dist.world import World
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.fast_dataclass import record, replace
from etude.plan import Parallel

if TYPE_CHECKING:
    from etude.dist.layout.context import Context
    from etude.dist.layout.pipeline import Pipe

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
    #: What gradients need before they are used, if the wrapper leaves anything to do.
    finish: Callable[[Iterable[Any]], None] | None = None
    #: The stages of this rank, if the model lies in stages.
    pipe: Pipe | None = None
    #: The part of sequences that is this rank's, if they are cut.
    context: Context | None = None
    #: The ranks that hold the same layers; None: all of them.
    stage: Any = None
    #: A parameter added to the model's, whose gradient travels with theirs: see :class:`~etude.dist.peers.Peers`.
    carrier: nn.Parameter | None = None


def whole_losses(losses: dict[str, Callable[..., Any]], mesh: Mesh) -> dict[str, Callable[..., Any]]:
    """Return losses that give plain numbers, also of scores that several processes have computed together."""
    if mesh.sizes["tensor"] == 1:
        return losses
    return {name: partial(_whole_loss, loss) for name, loss in losses.items()}


def _whole_loss(loss: Callable[..., Any], output: Any, target: Any) -> Any:
    return shards.whole(loss(output, target))


def strategy_of(parallel: Parallel, mesh: Mesh) -> str:
    """Return the strategy that ``auto`` means here; where nobody has other samples, none of them is needed."""
    if mesh.share[1] * mesh.sizes["context"] == 1:
        return "none"
    return "ddp" if parallel.strategy in ("auto", "none") else parallel.strategy


def mesh_of(parallel: Parallel, world: World) -> Mesh:
    """Return the mesh that the ranks of ``world`` form."""
    end = 0 if parallel.pipeline.is_vee else -1
    sizes = parallel.sizes(world.size, local=world.local_size)
    return Mesh(world.rank, end=end, virtual=parallel.virtual_ranks, **sizes)


def wrap(model: nn.Module, parallel: Parallel, mesh: Mesh, device: torch.device, *, by_hand: bool = False) -> Wrapped:
    """Wrap the model as ``parallel`` asks. Call it on every rank, before optimizers are made.

    ``by_hand`` is for updates of your own, which may call parts of the model without DDP's knowledge.
    """
    strategy = strategy_of(parallel, mesh)
    if mesh.size == 1:
        return Wrapped(model, model, lambda last: None)
    if by_hand and mesh.is_split:
        raise ConfigError("an update of your own cannot be used with a model that is split", at=str(parallel.at))
    if mesh.sizes["context"] > 1:
        return _cut(model, parallel, mesh, device, strategy)
    if mesh.sizes["pipeline"] > 1:
        return _in_stages(model, parallel, mesh, device, strategy)
    if mesh.sizes["tensor"] > 1:
        return _over_tensor(model, parallel, mesh, device, strategy)
    require_trainable(model, parallel)
    if mesh.virtual:
        shards.copy_from_first(model)
        return Wrapped(model, model, lambda last: None)
    if by_hand and strategy != "ddp":
        raise ConfigError(f"an update of your own cannot be used with {strategy}", at=str(parallel.at), hint="ddp can")
    if by_hand:  # without DDP, which would do this when it is made
        shards.copy_from_first(model)
        return Wrapped(model, model, lambda last: None, by_hand=True)
    if strategy == "ddp":
        return _data_parallel(model, parallel, device)
    return _sharded(model, parallel, _data_mesh(mesh, device, strategy), device)


def _cut(model: nn.Module, parallel: Parallel, mesh: Mesh, device: torch.device, strategy: str) -> Wrapped:
    """Cut sequences; gradients of parts are averaged as those of samples are."""
    from etude.dist.layout.context import Context

    mesh.connect(device.type)
    context = Context(model, parallel.context, mesh)
    if mesh.sizes["tensor"] > 1:
        made = _over_tensor(model, parallel, mesh, device, strategy)
    elif strategy == "ddp":
        require_trainable(model, parallel)
        made = _data_parallel(model, parallel, device, alike=False)
    else:
        require_trainable(model, parallel)
        made = _sharded(model, parallel, _data_mesh(mesh, device, strategy), device)
    return replace(made, context=context)


def _over_tensor(model: nn.Module, parallel: Parallel, mesh: Mesh, device: torch.device, strategy: str) -> Wrapped:
    """Split single layers first; what trains on other samples comes over that. DDP knows no DTensors."""
    from etude.dist.layout import kernels, tensor

    require_trainable(model, parallel)
    if parallel.compression != "none" or parallel.find_unused or parallel.static_graph:
        raise ConfigError("options of ddp do nothing for a model that is split", at=str(parallel.at))
    words = tensor.words_of(model, parallel.tensor)
    tensor.split(model, words, parallel.tensor, mesh.connect(device.type)["tensor"])
    if strategy == "none":
        return Wrapped(model, model, lambda last: None, finish=kernels.finish)
    data = _data_mesh(mesh, device, strategy)
    # So that torch sums over all of these ranks with one message.
    names = tuple(axis for axis in AXES if axis in "_".join((*data.mesh_dim_names, "tensor")).split("_"))
    mesh.connect(device.type)[names]._flatten("_".join(names))
    if strategy != "ddp":
        return _sharded(model, parallel, data, device)
    torch_private.replicate(model, data)
    shards.remember(model)
    return Wrapped(model, model, _Switch(model))


def _in_stages(model: nn.Module, parallel: Parallel, mesh: Mesh, device: torch.device, strategy: str) -> Wrapped:
    """Cut the model into stages, split the layers of those that this rank holds, then shard them."""
    from etude.dist.layout import pipeline

    require_trainable(model, parallel)
    devices = mesh.connect(device.type)
    dealt, own = stages.stages_of(model, parallel.pipeline), stages.on_rank(mesh, parallel.pipeline)
    words: dict[str, str] = {}
    if mesh.sizes["tensor"] > 1:
        from etude.dist.layout import tensor

        words = tensor.words_of(model, parallel.tensor)
        tensor.require_dividing(model, words, parallel.tensor)
    views = pipeline.cut(model, dealt, own)
    for view in views if words else ():
        tensor.split(view, words, parallel.tensor, devices["tensor"])
    if strategy in ("fsdp", "hsdp"):
        data = _data_mesh(mesh, device, strategy)
        for view in views:
            _sharded(view, parallel, data, device)
    same = devices["copy", "shard", "context", "tensor"]._flatten("stage")
    pipe = pipeline.Pipe(views, own, parallel.pipeline, mesh, device)
    finish = Finish(devices["copy"].get_group() if strategy == "ddp" else None, mesh.sizes["copy"], split=bool(words))
    return Wrapped(model, model, lambda last: None, finish=finish, pipe=pipe, stage=same.get_group())


class Finish:
    """Completes gradients that no wrapper has reduced: sums of tensor-parallel ranks, then means over copies."""

    def __init__(self, group: Any, copies: int, *, split: bool) -> None:
        self._group, self._copies, self._split = group, copies, split

    @torch.no_grad()
    def __call__(self, params: Iterable[Any]) -> None:
        given = list(params)
        if self._split:
            from etude.dist.layout import kernels

            kernels.finish(given)
        if self._group is None:
            return
        kinds: dict[torch.dtype, list[torch.Tensor]] = {}
        for param in given:
            if param.grad is not None:
                kinds.setdefault(param.grad.dtype, []).append(shards.local(param.grad))
        for grads in kinds.values():
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            torch.distributed.all_reduce(flat, group=self._group)
            flat /= self._copies
            for grad, mean in zip(grads, torch.split(flat, [grad.numel() for grad in grads]), strict=True):
                grad.copy_(mean.view_as(grad))


def _data_mesh(mesh: Mesh, device: torch.device, strategy: str) -> Any:
    """Return torch's mesh of the ranks that train on other samples, or on other parts of the same sequences."""
    devices = mesh.connect(device.type)
    axes = {"ddp": ("copy",), "fsdp": ("shard",), "hsdp": ("copy", "shard")}[strategy]
    if mesh.sizes["context"] == 1:
        return devices[axes]
    last = devices[axes[-1], "context"]._flatten(f"{axes[-1]}_context")
    return last if len(axes) == 1 else devices["copy", f"{axes[-1]}_context"]


def _data_parallel(model: nn.Module, parallel: Parallel, device: torch.device, *, alike: bool = True) -> Wrapped:
    """``alike``: all ranks have the same buffers."""
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
    made.broadcast_buffers = alike
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


def _sharded(model: nn.Module, parallel: Parallel, mesh: Any, device: torch.device) -> Wrapped:
    if parallel.offload and device.type == "cpu":
        raise ConfigError("parallel.offload keeps parameters in host memory: it needs a GPU", at=str(parallel.at))
    from torch.distributed.fsdp import (
        CPUOffloadPolicy,
        MixedPrecisionPolicy,
        OffloadPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    options: dict[str, Any] = {
        "mesh": mesh,
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
    for name in ("validation_step", "predict_step"):
        if hasattr(model, name):
            register_fsdp_forward_method(model, name)
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
            raise ConfigError(f"{name} searches with its own losses, which differ from rank to rank", at=at)
        if strategy in ("fsdp", "hsdp", "split"):
            fused = any(group.get("fused") for group in optimizer.param_groups)
            if name == "Adafactor" or (name == "SGD" and fused):
                what = "fused SGD" if fused else name
                text = f"{what} does not work with parameters in shards ({strategy})"
                raise ConfigError(text, at=at, hint="ddp does")
