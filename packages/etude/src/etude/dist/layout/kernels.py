"""Corrects what torch 2.13's DTensor computes wrongly or has no rule for, operation by operation.

.. code-block:: text

    item, float, tolist of a partial sum    the whole value, not this rank's part of it
    mean losses of a split batch            the gradient divided by the number of all elements, not of a rank's own
    log_softmax and nll_loss                classes may be split; ignored labels and weights count once, in all ranks
    dropout and other draws on a CPU        every rank draws for the whole tensor and keeps its own piece
    attention on a CPU                      split by samples and heads, which DTensor has no rule for
    convolutions of a partial sum           reduced first
    x[:, 1:3] = y, x[:, 1:3].add_(y)        refused along the dimension that is split: it writes into a copy

The corrections are below autograd and hold for the whole process, so no way of calling an operation leads past them;
only the last is a matter of the methods that Python code calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp
from torch.distributed import all_reduce as _all_reduce
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from etude import torch_private

_MEAN, _SUM = 1, 2
aten = torch.ops.aten


_DRAWS = (
    aten.normal_.default, aten.uniform_.default, aten.bernoulli_.float, aten.rand_like.default,
    aten.randn_like.default, aten.bernoulli.default, aten.multinomial.default,
)  # fmt: skip


@cache
def correct(device: str) -> None:
    """Put the corrections in place; once in a process."""
    from torch.distributed.tensor.experimental import implicit_replication

    handlers: dict[Any, Any] = DTensor._op_dispatcher._custom_op_handlers
    handlers[aten._local_scalar_dense.default] = _item
    for op in (
        aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default,
        aten.binary_cross_entropy_backward.default, aten.soft_margin_loss_backward.default,
    ):  # fmt: skip
        handlers[op] = _loss_backward
    handlers[aten._log_softmax.default] = _log_softmax
    handlers[aten._log_softmax_backward_data.default] = _log_softmax_backward
    for op in (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default):
        handlers[op] = _nll_loss
    for op in (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default):
        handlers[op] = _nll_loss_backward
    for op in _DRAWS if device == "cpu" else ():  # on CUDA torch keeps track itself
        handlers[op] = _draw
    handlers[aten._scaled_dot_product_flash_attention_for_cpu.default] = _attention
    handlers[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = _attention
    for op in (aten.convolution.default, aten.convolution_backward.default):
        handlers[op] = _convolution(handlers[op])
    for name in [name for name in dir(Tensor) if _writes(name)]:
        setattr(DTensor, name, _guarded(getattr(Tensor, name)))
    # Constants that a model makes are the same on all ranks of a mesh. Entered for good: models make them at any time.
    _forever.append(implicit_replication())
    _forever[-1].__enter__()


_forever: list[Any] = []


def reduced(tensor: Any) -> Any:
    """Return a DTensor without partial sums, and any other value as it is."""
    if isinstance(tensor, DTensor) and any(how.is_partial() for how in tensor.placements):
        return tensor.redistribute(placements=[Replicate() if how.is_partial() else how for how in tensor.placements])
    return tensor


def _mesh_of(args: tuple[Any, ...]) -> Any:
    return next(arg.device_mesh for arg in args if isinstance(arg, DTensor))


def _as(value: Any, mesh: Any, how: Any) -> Any:
    """Return this rank's piece of ``value`` in the placements ``how``; values that are no tensors stay."""
    if isinstance(value, DTensor):
        return value.redistribute(placements=how).to_local()
    if isinstance(value, Tensor):
        return distribute_tensor(value, mesh, how, src_data_rank=None).to_local()
    return value


def _made(local: Tensor, mesh: Any, how: Any, shape: Any) -> DTensor:
    stride = torch.empty(tuple(shape), device="meta").stride()
    return DTensor.from_local(local.contiguous(), mesh, how, run_check=False, shape=torch.Size(shape), stride=stride)


# -- writing into parts ------------------------------------------------------------------------------------------------


def _writes(name: str) -> bool:
    """Return whether a method of tensors changes the tensor: ``add_``, ``+=``, ``[…] =``."""
    return name == "__setitem__" or (name.startswith("__i") and hasattr(Tensor, f"__{name[3:]}")) or (
        name.endswith("_") and not name.startswith("_") and name not in ("requires_grad_", "retain_grad_")
    )  # fmt: skip


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to write into what looks like a view and is a copy."""

    @wraps(method)
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        part = self
        if method is Tensor.__setitem__ and _is_basic(args[0]):
            part = self[args[0]]
        base, own = part._base, part._local_tensor
        if isinstance(base, DTensor) and own.numel() and _memory(base._local_tensor) != _memory(own):
            raise RuntimeError(
                f"{method.__name__} writes into a part of a tensor along a dimension that is split over processes "
                f"({', '.join(map(str, base.placements))}): torch would change a copy; make a new tensor, with "
                "torch.cat or torch.where"
            )
        return method(self, *args, **kwargs)

    return write


def _is_basic(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(part is None or part is ... or isinstance(part, slice | int) for part in parts)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


# -- single values -----------------------------------------------------------------------------------------------------


def _item(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0].full_tensor().item()


# -- losses ------------------------------------------------------------------------------------------------------------


def _loss_backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute the gradient of a loss between elements. Arguments: gradient, input, target, perhaps a weight,
    reduction, and what is the loss's own."""
    mesh, given, target = _mesh_of(args), args[1], args[2]
    how = _plain((given if isinstance(given, DTensor) else target).placements)
    if op is aten.binary_cross_entropy_backward.default:  # whose default values are left out
        args = (*args, *(None, _MEAN)[len(args) - 3 :])
    place = next(at for at, arg in enumerate(args) if at > 2 and type(arg) is int)
    reduction, whole = args[place], [Replicate()] * mesh.ndim
    own = [_as(arg, mesh, how if at or reduction == 0 else whole) for at, arg in enumerate(args)]
    if reduction == _MEAN:
        own[0], own[place] = own[0] / given.numel(), _SUM
    return _made(op(*own, **kwargs), mesh, how, given.shape)


def _reduce(local: Tensor, mesh: Any, how: Any, kind: Any = ReduceOp.SUM, *, dim: int | None = None) -> Tensor:
    """Reduce over the mesh dimensions that split a tensor, or only over those that split its dimension ``dim``."""
    for axis, one in enumerate(how):
        if one.is_shard() if dim is None else one.is_shard(dim):
            local = local.contiguous()
            _all_reduce(local, kind, group=mesh.get_group(axis))
    return local


def _plain(how: Any) -> list[Any]:
    """Return placements that split a tensor evenly along single dimensions or not at all."""
    return [Shard(one.dim) if type(one) is Shard else Replicate() for one in how]


def _log_softmax(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given, dim, half_to_float = args
    mesh, how, dim = given.device_mesh, _plain(given.placements), dim % max(1, given.ndim)
    local = _as(given, mesh, how)
    local = local.float() if half_to_float else local
    if not any(one.is_shard(dim) for one in how):
        return _made(torch.log_softmax(local, dim), mesh, how, given.shape)
    top = local.amax(dim, keepdim=True) if local.shape[dim] else local.new_full((), -torch.inf).expand_as(local[:1])
    shifted = local - _reduce(top, mesh, how, ReduceOp.MAX, dim=dim)
    total = _reduce(shifted.exp().sum(dim, keepdim=True), mesh, how, dim=dim)
    return _made(shifted - total.log(), mesh, how, given.shape)


def _log_softmax_backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, output, dim, dtype = args
    mesh = _mesh_of((output, grad))
    how = _plain((output if isinstance(output, DTensor) else grad).placements)
    own, logs = _as(grad, mesh, how), _as(output, mesh, how)
    total = _reduce(own.sum(dim, keepdim=True), mesh, how, dim=dim % max(1, output.ndim))
    return _made((own - logs.exp() * total).to(dtype), mesh, how, output.shape)


class _Labels:
    """Labels and their weights, for scores whose classes and samples may be split."""

    def __init__(self, scores: DTensor, target: Any, weight: Any, ignore: int) -> None:
        self.mesh, self.how, self.shape = scores.device_mesh, _plain(scores.placements), scores.shape
        self.classes = 1 if scores.ndim > 1 else 0
        #: Placements of what has a value per sample: those of the scores, without the dimension of classes.
        self.each = [
            Replicate() if one.is_replicate() or one.dim == self.classes
            else Shard(one.dim - (one.dim > self.classes)) for one in self.how
        ]  # fmt: skip
        label = _as(target, self.mesh, self.each)
        whole = [Replicate()] * self.mesh.ndim
        self.seen = label != ignore
        safe = label.clamp(0, scores.shape[self.classes] - 1)
        given = None if weight is None else _as(weight, self.mesh, whole)
        self.weights = self.seen.to(scores.dtype) if given is None else given.to(scores.dtype)[safe] * self.seen
        begin, count = self._own_classes()
        #: Of each sample: the class among this rank's own, and whether it is one of them.
        self.mine = (safe >= begin) & (safe < begin + count) & self.seen
        self.place = (safe - begin).clamp(0, max(0, count - 1)).unsqueeze(self.classes)

    def _own_classes(self) -> tuple[int, int]:
        offset = torch_private.offset_of_shard(self.shape, self.mesh, self.how)
        shape = torch_private.shape_of_shard(self.shape, self.mesh, self.how)
        return offset[self.classes], shape[self.classes]

    @property
    def total(self) -> Tensor:
        """The weight of all samples of all ranks."""
        return _reduce(self.weights.sum(), self.mesh, self.each)


def _nll_loss(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    scores, target, weight, reduction, ignore = args
    if not isinstance(scores, DTensor):
        return op(scores, target.full_tensor(), weight, reduction, ignore)
    labels = _Labels(scores, target, weight, ignore)
    own = _as(scores, labels.mesh, labels.how)
    picked = own.gather(labels.classes, labels.place).squeeze(labels.classes) * labels.mine
    loss = -_reduce(picked, labels.mesh, labels.how, dim=labels.classes) * labels.weights
    whole, total = [Replicate()] * labels.mesh.ndim, labels.total
    weighed = _made(total, labels.mesh, whole, ())
    if reduction == 0:
        shape = [size for at, size in enumerate(scores.shape) if at != labels.classes]
        return _made(loss, labels.mesh, labels.each, shape), weighed
    summed = _reduce(loss.sum(), labels.mesh, labels.each)
    return _made(summed / total if reduction == _MEAN else summed, labels.mesh, whole, ()), weighed


def _nll_loss_backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, scores, target, weight, reduction, ignore, total = args
    if not isinstance(scores, DTensor):
        plain = [one.full_tensor() if isinstance(one, DTensor) else one for one in (grad, target, total)]
        return op(plain[0], scores, plain[1], weight, reduction, ignore, plain[2])
    labels = _Labels(scores, target, weight, ignore)
    whole = [Replicate()] * labels.mesh.ndim
    own = _as(grad, labels.mesh, labels.each if reduction == 0 else whole)
    own = own / _as(total, labels.mesh, whole) if reduction == _MEAN else own
    each = (-own * labels.weights * labels.mine).unsqueeze(labels.classes)
    made = torch.zeros_like(_as(scores, labels.mesh, labels.how)).scatter(labels.classes, labels.place, each)
    return _made(made, labels.mesh, labels.how, scores.shape)


# -- random numbers ----------------------------------------------------------------------------------------------------


def _draw(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draw for the whole tensor on every rank, and keep this rank's piece.

    The generators of all ranks stay equal, and the numbers are those of one process. On CUDA torch's own tracker does
    that without the whole tensor."""
    given, name = reduced(args[0]), op._schema.name
    if given is not args[0] and name.endswith("_"):
        raise RuntimeError(f"{name} draws into a sum that is not complete: {args[0].placements}")
    how = given.placements
    if name in ("aten::bernoulli", "aten::multinomial"):
        made = op(given.full_tensor(), *args[1:], **kwargs)
    else:
        dtype = kwargs.get("dtype") or given.dtype
        made = op(torch.empty(given.shape, dtype=dtype, device=given.device), *args[1:], **kwargs)
    if name == "aten::multinomial":
        how = [one if one.is_shard(0) and given.ndim > 1 else Replicate() for one in how]
    own = distribute_tensor(made, given.device_mesh, how, src_data_rank=None)
    if not name.endswith("_"):
        return own
    args[0].to_local().copy_(own.to_local())
    return args[0]


# -- attention and convolutions ----------------------------------------------------------------------------------------


def _attention(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Attend within the samples and heads of this rank, forward or backward."""
    mesh = _mesh_of(args)
    first = next(arg for arg in args if isinstance(arg, DTensor))
    how: list[Any] = [one if one.is_shard(0) or one.is_shard(1) else Replicate() for one in _plain(first.placements)]
    own = [_as(arg, mesh, how) for arg in args]
    mask = kwargs.get("attn_mask")
    if mask is not None:
        split: list[Any] = [
            one if one.is_shard() and one.dim - 4 + mask.ndim >= 0 and mask.shape[one.dim - 4 + mask.ndim] > 1
            else Replicate() for one in how
        ]  # fmt: skip
        split = [Shard(one.dim - 4 + mask.ndim) if one.is_shard() else one for one in split]
        kwargs = {**kwargs, "attn_mask": _as(mask, mesh, split)}
    whole = [arg.shape for arg in args if isinstance(arg, Tensor)]
    results = op(*own, **kwargs)
    if len(whole) == 3:  # forward: the output, and the logarithms of sums, which have no last dimension
        query, value = whole[0], whole[2]
        shapes = [(*query[:-1], value[-1]), query[:-1]]
    else:  # gradients of query, key and value
        shapes = list(whole[1:4])
    return tuple(_made(one, mesh, how, shape) for one, shape in zip(results, shapes, strict=True))


def _convolution(known: Callable[..., Any]) -> Callable[..., Any]:
    def convolve(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Convolve whole pictures: of those that are split by anything but samples, all ranks have all."""

        mesh = _mesh_of(args)

        def whole(arg: Any, *, samples: bool) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            if not isinstance(arg, DTensor):  # pictures, which torch's own rule expects as DTensors
                return DTensor.from_local(arg, mesh, [Replicate()] * mesh.ndim, run_check=False)
            how = [one if samples and one.is_shard(0) else Replicate() for one in arg.placements]
            return arg.redistribute(placements=how)

        # The gradient of the weight is a sum over samples, so a gradient (first of backward) may be split by them too.
        pictures = 2 if op is aten.convolution_backward.default else 1
        return known(op, tuple(whole(arg, samples=at < pictures) for at, arg in enumerate(args)), kwargs)

    return convolve


def finish(params: Any) -> None:
    """Bring every gradient into the placements of its parameter: until now, parts of a sum may be on several ranks."""
    for param in params:
        grad = param.grad
        if isinstance(grad, DTensor) and grad.placements != param.placements:
            param.grad = grad.redistribute(placements=param.placements)
