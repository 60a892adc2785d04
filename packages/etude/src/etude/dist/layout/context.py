"""Cuts sequences over processes: each computes its part of all of them, and attention sees the keys of all parts.

.. code-block:: text

    inputs, targets   cut along their second dimension, the positions
    buffers           those named in the plan (tables of positions) are cut with them
    attention         `scaled_dot_product_attention`: keys and values are gathered, the mask follows from positions
    all else          position by position, so it needs nothing from others

What is not position by position, and is not that function, would be wrong without a word. So the loss of the first
sample is computed whole and in parts, and a difference ends the run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from etude import torch_private
from etude.dist.layout.mesh import Mesh
from etude.errors import ConfigError, UserCodeError
from etude.errors.spelling import suggest
from etude.plan import Context as ContextPlan

#: How far a loss may be from that of whole sequences, relatively, by the type of numbers.
_CLOSE, _CLOSE_HALF = 1e-4, 3e-2
#: The label that losses of torch leave out.
_IGNORED = -100


class Context:
    """Which part of every sequence is this rank's, and what makes the parts one."""

    def __init__(self, model: nn.Module, plan: ContextPlan, mesh: Mesh) -> None:
        self.plan, self.model = plan, model
        self.group, self.rank, self.size = mesh.group("context"), mesh.place["context"], mesh.sizes["context"]
        self._buffers = self._found()
        #: Whether sequences are in parts now.
        self.is_active = False
        #: Whether a batch was compared with whole sequences.
        self.is_verified = False
        _replace_attention(self)
        model.register_state_dict_pre_hook(lambda *_: self._restore())  # type: ignore[no-untyped-call]

    def _found(self) -> list[tuple[nn.Module, str, Tensor, int]]:
        known = {name: (module, name.rpartition(".")[2]) for module, name in _buffers_of(self.model)}
        found = []
        for pattern, dim in self.plan.buffers.items():
            names = [name for name in known if fnmatchcase(name, pattern)]
            if not names:
                raise ConfigError(
                    f"parallel.context.buffers: the model has no buffer {pattern!r}",
                    at=str(self.plan.places.get("buffers", self.plan.at)), hint=suggest(pattern, known),
                )  # fmt: skip
            for name in names:
                module, own = known[name]
                whole: Any = module._buffers[own]
                found.append((module, own, whole, dim))
        return found

    def cut(self, value: Any) -> Any:
        """Return this rank's part of tensors that have positions."""
        return torch_private.mapped(self._part, value)

    def _part(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.ndim < 2:
            shape = tuple(value.shape)
            raise UserCodeError(f"parallel.context cuts the second dimension, which a tensor of shape {shape} has not")
        length = value.shape[1]
        if length % self.size:
            raise ConfigError(
                f"parallel.context: {self.size} processes cannot share sequences of {length} evenly",
                at=str(self.plan.at), hint=f"a length of {-(-length // self.size) * self.size} would fit",
            )  # fmt: skip
        return value.chunk(self.size, 1)[self.rank]

    @contextmanager
    def parts(self, length: int) -> Iterator[None]:
        """Compute with parts of sequences of ``length`` inside; gradients may still be computed afterwards."""
        each = length // self.size
        for module, name, whole, dim in self._buffers:
            # A copy: buffers are sent around before an evaluation, and the whole one has to stay as it is.
            module._buffers[name] = whole.narrow(dim, self.rank * each, each).clone()
        self.is_active = True
        yield

    def _restore(self) -> None:
        for module, name, whole, _ in self._buffers:
            module._buffers[name] = whole

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Compute with whole sequences inside."""
        self._restore()
        self.is_active = False
        yield

    def gathered(self, value: Tensor, dim: int) -> Tensor:
        """Return the parts of all processes, in order; gradients find their way back."""
        made: Tensor = _Gathered.apply(value, dim % value.ndim, self.group, self.rank, self.size)  # type: ignore[no-untyped-call]
        return made

    def weight(self, target: Any, ignored: int) -> float:
        """Return what the mean over this rank's labels counts for in the mean over all, where some are ignored."""
        if not isinstance(target, Tensor) or target.is_floating_point():
            return 1.0
        counts = torch.zeros(self.size, device=target.device)
        counts[self.rank] = (target != ignored).sum()
        distributed.all_reduce(counts, group=self.group)
        total = float(counts.sum())
        return float(counts[self.rank]) * self.size / total if total else 1.0

    def verify(self, compute: Callable[[bool], Tensor]) -> None:
        """Compare the loss of whole sequences with the mean over their parts, once."""
        self.is_verified = True
        kept = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                whole, part = compute(True).float(), compute(False).float()
        finally:
            self.model.train(kept)
        distributed.all_reduce(part, group=self.group)
        part /= self.size
        close = _CLOSE if compute(True).dtype == torch.float32 else _CLOSE_HALF
        if not torch.isfinite(whole) or abs(float(whole - part)) <= close * max(1.0, abs(float(whole))):
            return
        raise ConfigError(
            f"parallel.context: the model gives a loss of {float(part):.6g} for sequences in {self.size} parts, and of "
            f"{float(whole):.6g} for whole ones", at=str(self.plan.at),
            hint="name its tables of positions under buffers: {'*.table': 0}; attention has to be "
            "scaled_dot_product_attention, and the loss a mean over positions",
        )  # fmt: skip


class _Gathered(torch.autograd.Function):
    """Joins the parts of all processes; each gets back the sum of the gradients of its part."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, dim: int, group: Any, rank: int, size: int) -> Tensor:
        ctx.dim, ctx.group, ctx.rank, ctx.size = dim, group, rank, size
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(size)]
        distributed.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        summed = grads[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(summed, group=ctx.group)
        return summed.chunk(ctx.size, ctx.dim)[ctx.rank].clone(), None, None, None, None


def _replace_attention(context: Context) -> None:
    """Let every module that knows torch's attention call one that sees the keys of all parts: also where activations
    are computed again, inside of backward passes."""
    known = F.scaled_dot_product_attention

    @wraps(known)
    def attention(*args: Any, **options: Any) -> Tensor:
        return _attend(context, known, *args, **options) if context.is_active else known(*args, **options)

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(known.__name__) is known:
            setattr(module, known.__name__, attention)


def _attend(
    context: Context, attention: Any, query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, **options: Any,
) -> Tensor:  # fmt: skip
    if attn_mask is not None:
        raise UserCodeError("parallel.context: a mask of attention is for whole sequences; is_causal=True can be used")
    if query.shape[-2] != key.shape[-2]:
        raise UserCodeError("parallel.context: attention to other sequences cannot be cut")
    split: Any = query if hasattr(query, "full_tensor") else None
    own = [one.to_local() if split is not None else one for one in (query, key, value)]  # type: ignore[attr-defined]
    length = own[0].shape[-2]
    keys, values = (context.gathered(one, -2) for one in own[1:])
    if is_causal:
        at = torch.arange(length, device=query.device) + length * context.rank
        attn_mask = at[:, None] >= torch.arange(keys.shape[-2], device=query.device)
    made: Tensor = attention(own[0], keys, values, attn_mask=attn_mask, dropout_p=dropout_p, **options)
    if split is None:
        return made
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(made, split.device_mesh, split.placements, run_check=False)


def _buffers_of(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for prefix, module in model.named_modules():
        for name, _ in module.named_buffers(recurse=False):
            yield module, f"{prefix}.{name}" if prefix else name
