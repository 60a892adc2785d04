"""What torch's DTensor has no rule for, or computes wrongly without an error, computed rightly.

Each rule replaces how an operation of ATen is run on global tensors, so it holds for every function of torch that leads
there, and for its gradient. The tests compare values and gradients with those of plain tensors, so they notice when a
version of torch needs a rule no longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate

from etude.errors import UserCodeError
from etude_libai.live.split import meshes, stages
from etude_libai.live.split.meshes import of_piece

aten = torch.ops.aten
#: What ATen calls the ways to reduce a loss.
_NONE, _MEAN, _SUM = 0, 1, 2
Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def install() -> None:
    """Put the rules in the place of DTensor's own."""
    rules: dict[Any, Any] = meshes.handlers()
    for name in ("convolution", "convolution_backward"):
        op = getattr(aten, name).default
        rules[op] = _convolution(rules[op])
    for name, extra in _LOSSES.items():
        rules[getattr(aten, name).default] = _loss(extra)
        rules[getattr(aten, f"{name}_backward").default] = _loss_backward(extra)
    for name in ("nll_loss_forward", "nll_loss2d_forward"):
        rules[getattr(aten, name).default] = _nll_loss
    for name in ("nll_loss_backward", "nll_loss2d_backward"):
        rules[getattr(aten, name).default] = _nll_loss_backward
    rules[aten._scaled_dot_product_flash_attention_for_cpu.default] = _attention
    rules[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = _attention_backward
    for op in (aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims):
        rules[op] = _of_whole
    rules[aten.fill_.Scalar] = _fill
    rules[aten._local_scalar_dense.default] = _item
    kind: Any = DTensor
    kind.tolist = lambda self: _read(self).tolist()
    kind.numpy = lambda self, *, force=False: _read(self).numpy(force=force)
    kind.__array__ = lambda self, *args: _read(self).numpy().__array__(*args)
    kind.__setitem__, kind.__format__ = _setitem, _format
    for name in dir(torch.Tensor):
        if re.fullmatch(r"[a-z]\w*_|__i(?!nit|nt|ndex)\w+__", name) and not name.startswith("requires_grad"):
            setattr(kind, name, _of_no_copy(name))
    _pool = F.adaptive_avg_pool1d

    def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
        """Pool; to one value by the mean, because torch's way has no rule."""
        one = isinstance(input, DTensor) and output_size in (1, (1,), [1])
        return input.mean(-1, keepdim=True) if one else _pool(input, output_size)

    F.adaptive_avg_pool1d = adaptive_avg_pool1d


# -- pieces ------------------------------------------------------------------------------------------------------------


def elsewhere(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what an operation on tensors of other ranks gives here: nothing, of the right shape."""
    mesh = next(arg.device_mesh for arg in args if isinstance(arg, DTensor))

    def meta(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        return torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device="meta")

    def empty(made: Any) -> Any:
        if not isinstance(made, torch.Tensor):
            return made
        return of_piece(
            torch.empty(0, dtype=made.dtype, device=mesh.device_type),
            mesh,
            [Replicate()] * mesh.ndim,
            made.shape,
            made.stride(),
        )

    made = op(*map(meta, args), **{name: meta(value) for name, value in kwargs.items()})
    return tuple(map(empty, made)) if isinstance(made, tuple | list) else empty(made)


def _local(tensor: Any, how: Sequence[Any]) -> Any:
    """Return this rank's piece of a tensor that is split as ``how`` says; None and a plain constant as they are."""
    return tensor.redistribute(placements=list(how))._local_tensor if isinstance(tensor, DTensor) else tensor


def _requireof_piece(op: Any, *tensors: Any) -> None:
    """Raise torch's error for local tensors, which may differ between processes."""
    if not all(isinstance(tensor, DTensor) for tensor in tensors):
        raise RuntimeError(f"{op}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor")


# -- convolutions ------------------------------------------------------------------------------------------------------


def _convolution(known: Rule) -> Rule:
    """Return a rule that adds up sums, and gathers all dimensions but the samples, before the known one is used.

    Without, the values are wrong: the parts of a sum get the bias each, and pieces of a picture no neighbours.
    """

    def convolve(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first = next(arg for arg in args if isinstance(arg, DTensor))
        if not meshes.is_here(first.device_mesh):
            return elsewhere(op, args, kwargs)
        samples = 2 if op is aten.convolution_backward.default else 1  # gradient and input, or input alone
        grown = [
            arg.redistribute(placements=meshes.without_sums(arg.placements, keep=(0,) if at < samples else ()))
            if isinstance(arg, DTensor)
            else arg
            for at, arg in enumerate(args)
        ]
        return known(op, tuple(grown), kwargs)

    return convolve


# -- losses ------------------------------------------------------------------------------------------------------------

#: Loss → the number of its arguments between target and reduction.
_LOSSES = {"mse_loss": 0, "soft_margin_loss": 0, "binary_cross_entropy": 1}
#: The last argument of others comes after the reduction.
_LOSSES |= {"smooth_l1_loss": 0, "huber_loss": 0}


def _loss(extra: int) -> Rule:
    """Return a rule for the mean (or sum) over the elements of all ranks. DTensor's own has a gradient too large."""

    def compute(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = _complete(op, args, kwargs)
        input, target, reduction = args[0], args[1], args[2 + extra]
        _requireof_piece(op, input, target)
        if not meshes.is_here(input.device_mesh):
            return elsewhere(op, args, {})
        how = meshes.without_sums(input.placements)
        own = [_local(arg, how) for arg in args]
        if reduction == _NONE:
            return of_piece(op(*own), input.device_mesh, how, input.shape)
        own[2 + extra] = _SUM
        total = op(*own) / (input.numel() if reduction == _MEAN else 1)
        parts = [Replicate() if one.is_replicate() else Partial() for one in how]
        return of_piece(total, input.device_mesh, parts, ())

    return compute


def _loss_backward(extra: int) -> Rule:
    def compute(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = _complete(op, args, kwargs)
        grad, input, target, reduction = args[0], args[1], args[2], args[3 + extra]
        _requireof_piece(op, input, target)
        mesh = input.device_mesh
        if not meshes.is_here(mesh):
            return elsewhere(op, args, {})
        how = meshes.without_sums(input.placements)
        back = how if reduction == _NONE else [Replicate()] * mesh.ndim
        own = [_local(grad, back), *(_local(arg, how) for arg in args[1:])]
        if reduction != _NONE:
            own[0] = own[0] / (input.numel() if reduction == _MEAN else 1)
            own[3 + extra] = _SUM
        return of_piece(op(*own), mesh, how, input.shape)

    return compute


def _complete(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return all arguments by their places, with defaults."""
    rest = op._schema.arguments[len(args) :]
    return (*args, *(kwargs.get(one.name, one.default_value) for one in rest))


def _nll_loss(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the loss and the weight of all labels that count. DTensor's own takes the mean of the ranks' means."""
    input, target, weight, reduction, ignored = _complete(op, args, kwargs)
    _requireof_piece(op, input, target)
    mesh = input.device_mesh
    how, everywhere = meshes.without_sums(input.placements, keep=(0,)), [Replicate()] * mesh.ndim
    if not meshes.is_here(mesh):
        nothing = input._local_tensor.new_empty(0)
        shape = target.shape if reduction == _NONE else ()
        return of_piece(nothing, mesh, everywhere, shape), of_piece(nothing, mesh, everywhere, ())
    own, label, shares = _local(input, how), _local(target, how), _local(weight, everywhere)
    if reduction == _NONE:
        each, total = op(own, label, shares, _NONE, ignored)
        return of_piece(each, mesh, how, target.shape), of_piece(total, mesh, everywhere, total.shape)
    loss, _ = op(own, label, shares, _SUM, ignored)
    both = torch.stack([loss, _counted(label, shares, ignored, own)])
    parts = [Replicate() if one.is_replicate() else Partial() for one in how]
    loss, total = _local(of_piece(both, mesh, parts, (2,)), everywhere).unbind()
    loss = loss / total if reduction == _MEAN else loss
    return tuple(of_piece(one.contiguous(), mesh, everywhere, ()) for one in (loss, total))


def _counted(label: torch.Tensor, shares: Any, ignored: int, like: torch.Tensor) -> Any:
    seen = label != ignored
    if shares is None:
        return seen.sum().to(like.dtype)
    return (shares[label.where(seen, 0)] * seen).sum().to(like.dtype)


def _nll_loss_backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, input, target, weight, reduction, ignored, total = _complete(op, args, kwargs)
    _requireof_piece(op, input, target)
    mesh = input.device_mesh
    how, everywhere = meshes.without_sums(input.placements, keep=(0,)), [Replicate()] * mesh.ndim
    if not meshes.is_here(mesh):
        return of_piece(input._local_tensor.new_empty(0), mesh, everywhere, input.shape)
    own, label, shares = _local(input, how), _local(target, how), _local(weight, everywhere)
    all_of_it = _local(total, everywhere)
    if reduction == _NONE:
        made = op(_local(grad, how), own, label, shares, _NONE, ignored, all_of_it)
    else:
        back = _local(grad, everywhere) / (all_of_it if reduction == _MEAN else 1)
        made = op(back, own, label, shares, _SUM, ignored, all_of_it)
    return of_piece(made, mesh, how, input.shape)


# -- attention ---------------------------------------------------------------------------------------------------------


def _attention_placements(query: DTensor, key: DTensor, value: DTensor) -> list[Any]:
    """Return how attention is split: by samples and by heads, if their numbers can be divided."""
    made: list[Any] = []
    placements: Any = query.placements
    for size, how in zip(query.device_mesh.shape, placements, strict=True):
        fits = how.is_shard() and how.dim in (0, 1) and all(t.shape[how.dim] % size == 0 for t in (query, key, value))
        made.append(how if fits else Replicate())
    return made


def _mask_piece(mask: Any, how: Sequence[Any]) -> Any:
    """Return the part of a mask for this rank's samples and heads; a dimension of 1 is for all of them."""
    if not isinstance(mask, DTensor):
        return mask
    first = 4 - mask.ndim  # masks may have fewer dimensions than the query
    moved: list[Any] = [
        type(one)(one.dim - first) if one.is_shard() and one.dim >= first else Replicate() for one in how
    ]
    return _local(mask, [one if one.is_shard() and mask.shape[one.dim] > 1 else Replicate() for one in moved])


def _attention(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    query, key, value, *rest = args
    _requireof_piece(op, query, key, value)
    mesh = query.device_mesh
    if not meshes.is_here(mesh):
        return elsewhere(op, args, kwargs)
    how = _attention_placements(query, key, value)
    options = {**kwargs, "attn_mask": _mask_piece(kwargs.get("attn_mask"), how)}
    out, sums = op(*(_local(each, how) for each in (query, key, value)), *rest, **options)
    shape = query.shape[:3]
    return (
        of_piece(out, mesh, how, (*shape, value.shape[3]), _strides(out, (*shape, value.shape[3]))),
        of_piece(sums, mesh, how, shape, _strides(sums, shape)),
    )


def _strides(own: torch.Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a whole tensor that lies in memory in the order of its piece ``own``."""
    made, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (own.stride(dim), -dim)):
        made[dim], step = step, step * shape[dim]
    return tuple(made)


def _attention_backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, query, key, value, out, sums, *rest = args
    mesh = query.device_mesh
    if not meshes.is_here(mesh):
        return elsewhere(op, args, kwargs)
    how = _attention_placements(query, key, value)
    options = {**kwargs, "attn_mask": _mask_piece(kwargs.get("attn_mask"), how)}
    made = op(*(_local(each, how) for each in (grad, query, key, value, out, sums)), *rest, **options)
    return tuple(
        of_piece(own, mesh, how, each.shape, _strides(own, each.shape))
        for own, each in zip(made, (query, key, value), strict=True)
    )


# -- values ------------------------------------------------------------------------------------------------------------


def _read(tensor: DTensor) -> torch.Tensor:
    if stages.running():
        raise UserCodeError(
            "the model reads a value of a tensor (item(), float(), tolist(), numpy(), or `if tensor`) in its forward "
            "pass; processes cannot agree on it while their micro-batches overlap; set graph.enabled=False"
        )
    found: torch.Tensor = meshes.whole(tensor)
    return found


def _item(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the value of the whole tensor. DTensor's own is that of this rank's part of a sum."""
    return op(_read(args[0]))


def _of_whole(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the whole tensor. DTensor's own result adds up as a number where it is a bool."""
    mesh = args[0].device_mesh
    if not meshes.is_here(mesh):
        return elsewhere(op, args, kwargs)
    everywhere = [Replicate()] * mesh.ndim
    made = op(_local(args[0], everywhere), *args[1:], **kwargs)
    return of_piece(made, mesh, everywhere, made.shape, made.stride())


def _fill(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fill a tensor. Of a sum, the first rank has the value and the others nothing."""
    tensor, value = args
    here = tensor.device_mesh.get_coordinate() or ()
    later = any(place and how.is_partial() for place, how in zip(here, tensor.placements, strict=False))
    op(tensor._local_tensor, 0 if later else value)
    return tensor


def _of_no_copy(name: str) -> Callable[..., Any]:
    """Return a method in place that refuses a part along a split dimension: it would change a copy of that part."""
    theirs = getattr(torch.Tensor, name)

    @wraps(theirs)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        base = self._base if self._is_view() else None
        if isinstance(base, DTensor):
            own, whole = self._local_tensor, base._local_tensor
            if own.numel() and own.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
                raise UserCodeError(
                    f"{name} changes a part of a tensor in place, along a dimension that is split over processes: that "
                    "would change a copy; assign instead, as in x[1:3] = 2 * x[1:3]"
                )
        return theirs(self, *args, **kwargs)

    return method


def _format(self: DTensor, spec: str) -> str:
    """Format a scalar as the number that it is, as torch does for plain tensors."""
    return format(self.item() if self.ndim == 0 else repr(self), spec)


_plain_setitem = torch.Tensor.__setitem__


def _setitem(self: DTensor, index: Any, value: Any) -> None:
    """Assign to a part of a tensor. Along a split dimension, DTensor would change a copy."""
    whole = [Replicate() if how.is_shard() else how for how in self.placements]
    if list(self.placements) == whole:
        _plain_setitem(self, index, value)
        return
    made: Any = self.redistribute(placements=whole).clone()
    _plain_setitem(made, index, value)
    self.copy_(made.redistribute(placements=self.placements))
