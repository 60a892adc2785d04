"""Splits and joins the states of sharded parameters, so that a run can resume in any number of processes.

A checkpoint holds the pieces of a tensor by the model's own names, each with its place in the whole. So a run resumes
in another number of processes, or under another strategy, from the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from etude import torch_private
from etude.fast_dataclass import record

#: Parameter in shards → FSDP's own record of it.
# By identity: `==` of tensors compares their elements.
_records: Any = WeakIdKeyDictionary()


@record
class Piece:
    """The part of a sharded tensor that this rank holds: as large as ``local``, its first element at ``offset``."""

    local: torch.Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    #: Whether this rank saves the piece: with hsdp several ranks hold the same one, and the first of them does.
    saved_here: bool


def piece_of(tensor: Any) -> Piece | None:
    """Return what this rank holds of ``tensor``; None for a tensor that is whole."""
    if isinstance(tensor, Piece):
        return tensor
    # Not by `to_local`, which OneFlow's names give to every tensor.
    if not hasattr(tensor, "full_tensor"):
        return None
    with torch.no_grad():
        own = tensor.to_local()
    return Piece(own, tuple(tensor.shape), *_place(tensor.shape, tensor.device_mesh, tensor.placements))


@lru_cache(maxsize=1 << 16)  # working it out takes longer than copying a small tensor
def _place(shape: torch.Size, mesh: Any, placements: tuple[Any, ...]) -> tuple[tuple[int, ...], bool]:
    """Return where the piece of this rank begins, and whether this rank saves it."""
    here = mesh.get_coordinate()
    if here is None:  # the tensor is on other ranks alone
        return (0,) * len(shape), False
    # Not by `is_shard`, which is False for the shards that FSDP makes of a tensor-parallel weight.
    copies = [place for place, how in zip(here, placements, strict=True) if how.is_replicate()]
    return torch_private.offset_of_shard(shape, mesh, placements), not any(copies)


def stacked(tensor: Any, rank: int, size: int) -> Piece:
    """Return this rank's ``tensor``, or its piece of that, as a row of one that holds those of all ranks."""
    own = piece_of(complete(tensor)) or Piece(tensor, tuple(tensor.shape), (0,) * tensor.ndim, saved_here=True)
    return Piece(own.local.unsqueeze(0), (size, *own.shape), (rank, *own.offset), own.saved_here)


def complete(tensor: Any) -> Any:
    """Return ``tensor`` with the sums made that several ranks have parts of."""
    if hasattr(tensor, "full_tensor") and any(how.is_partial() for how in tensor.placements):
        from torch.distributed.tensor import Replicate

        how = [Replicate() if one.is_partial() else one for one in tensor.placements]
        return tensor.redistribute(placements=how)
    return tensor


def stored_gradient(param: torch.Tensor, grad: Any, share: tuple[int, int]) -> Any:
    """Return a gradient of an incomplete update as it is saved: pieces of a gradient that all ranks have together, or a
    row for each gradient whose mean is to be taken."""
    if isinstance(grad, Piece):
        return grad
    if hasattr(grad, "full_tensor") and grad.device_mesh == getattr(param, "device_mesh", None):
        return complete(grad)
    return stacked(grad, *share)


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield all tensors and pieces in a tree of mappings and lists."""
    if isinstance(value, torch.Tensor | Piece):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)


def has_shards(state: Any) -> bool:
    """Return whether some tensor in ``state`` is spread over ranks."""
    return any(isinstance(one, Piece) or hasattr(one, "full_tensor") for one in tensors_in(state))


def whole(tensor: Any) -> Any:
    """Return ``tensor`` whole. All ranks call it, for each has a piece."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def whole_in(value: Any) -> Any:
    """Return a tree of outputs with all of its tensors whole."""
    if isinstance(value, torch.Tensor):
        return whole(value)
    return torch_private.mapped(whole, value)


def local(tensor: Any) -> Any:
    """Return the piece of ``tensor`` that this rank holds, in the same memory; a whole tensor is itself."""
    return tensor.to_local() if hasattr(tensor, "full_tensor") else tensor


def copy_from_first(model: torch.nn.Module) -> None:
    """Give every rank the parameters and buffers of the first."""
    for tensor in (*model.parameters(), *model.buffers()):
        torch.distributed.broadcast(tensor.detach(), src=0)


def forget_whole(model: torch.nn.Module) -> None:
    """Free the whole parameters that FSDP may have kept after a forward pass, so that it gathers them anew."""
    for module in model.modules():
        reshard: Any = getattr(module, "reshard", None)
        if reshard is not None:
            reshard()


def remember(model: torch.nn.Module) -> None:
    """Record where FSDP keeps the gradients of ``model`` that it has not reduced yet."""
    for module in model.modules():
        state: Any = getattr(module, "_get_fsdp_state", None)
        if state is not None:
            for group in state()._fsdp_param_groups:
                _records.update({one.sharded_param: one for one in group.fsdp_params})


def gradient(param: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient that ``param`` has so far. FSDP keeps that of an incomplete update separately:
    whole, and of this rank's samples alone."""
    record = _records.get(param)
    if record is None or param.grad is not None:
        return param.grad
    if record.unsharded_accumulated_grad is not None:
        return record.unsharded_accumulated_grad  # type: ignore[no-any-return]
    return getattr(getattr(record, "_unsharded_param", None), "grad", None)


def set_gradient(param: torch.Tensor, grad: torch.Tensor | None) -> None:
    """Put ``grad`` where the next backward pass adds to it; None drops what is there."""
    record = _records.get(param)
    # The backward pass adds to it in place; what was given stays as it is.
    own = None if grad is None else grad.to(param.device).clone()
    if record is None:
        param.grad = own
        return
    param.grad, record.unsharded_accumulated_grad = None, own
    if hasattr(record, "_unsharded_param"):
        record._unsharded_param.grad = None


def is_sharded(model: torch.nn.Module) -> bool:
    """Return whether FSDP holds the parameters in shards."""
    return any(hasattr(param, "full_tensor") for param in model.parameters())


def like(tensor: Any, param: Any) -> Any:
    """Return ``tensor`` sharded like ``param``, if that is sharded and the shapes are the same."""
    if not hasattr(param, "full_tensor") or not isinstance(tensor, torch.Tensor) or hasattr(tensor, "full_tensor"):
        return tensor
    if tensor.shape != param.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every rank has the whole tensor: without a source rank, nothing is sent.
    return distribute_tensor(tensor.to(param.device), param.device_mesh, param.placements, src_data_rank=None)


def by_number(update: Any) -> dict[str, torch.Tensor]:
    """Return the parameters of an update by the numbers that its state has for them: in a pipeline, those of the whole
    model's parameters."""
    params = getattr(update, "params", ())
    return dict(zip(map(str, getattr(update, "numbers", range(len(params)))), params, strict=True))


def scattered(run: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state of whole tensors, sharded like the parts of ``run``."""
    made = dict(state)
    update = state.get("update")
    if isinstance(update, Mapping) and update.get("grads"):
        params = by_number(run.update)
        grads = {key: _gradient(run, params[key], grad) for key, grad in update["grads"].items() if key in params}
        made["update"] = {**update, "grads": grads}
    if not is_sharded(run.model):
        return made
    named = dict(run.model.named_parameters(remove_duplicate=False))
    made["model"] = {name: like(tensor, named.get(name)) for name, tensor in state["model"].items()}
    for name, optimizer in run.optimizers.items():
        part = f"optimizer.{name}" if name else "optimizer"
        if part in state and not hasattr(optimizer, "etude_numbers"):
            made[part] = _optimizer(optimizer, state[part])
    for part, value in state.items():
        if part.startswith("hook.") and isinstance(value, Mapping) and isinstance(value.get("average"), Mapping):
            average = {name: like(tensor, named.get(name)) for name, tensor in value["average"].items()}
            made[part] = {**value, "average": average}
    return made


def _gradient(run: Any, param: torch.Tensor, grad: torch.Tensor) -> Any:
    """Return a gradient of an incomplete update. It is not reduced yet, so every rank has its own; another number of
    ranks takes the mean, which gives the same result."""
    if grad.ndim > param.ndim:
        own, count = run.place.gradient
        grad = grad[own] if len(grad) == count else grad.mean(0)
    record = _records.get(param)
    if record is None:
        return like(grad, param)
    if not record.is_dtensor:
        return grad
    from torch.distributed.tensor import distribute_tensor

    # FSDP shards what a tensor-parallel plan has split: until it reduces, gradients are split as that says.
    spec = record._unsharded_dtensor_spec
    return distribute_tensor(grad.to(param.device), spec.mesh, spec.placements, src_data_rank=None)


def _optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    order = [index for group in state["param_groups"] for index in group["params"]]
    by_index = dict(zip(order, params, strict=False))
    own = {
        index: {key: like(value, by_index.get(index)) for key, value in values.items()}
        for index, values in state["state"].items()
    }
    # The kernel is a matter of this run: one that takes whole tensors alone may have made the checkpoint.
    ways = [{key: group[key] for key in ("fused", "foreach") if key in group} for group in optimizer.param_groups]
    groups = [{**group, **way} for group, way in zip(state["param_groups"], ways, strict=False)]
    return {**state, "state": own, "param_groups": groups}
