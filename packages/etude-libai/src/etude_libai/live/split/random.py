"""Random numbers of global tensors: every process draws those of one process, and keeps its piece.

So the generators of all processes stay equal, as long as all draw for the same tensors in the same order, also for
those of other ranks. What data sets and mixup draw comes from a generator of each process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
import torch.distributed as torch_dist
from torch.distributed.tensor import DTensor

from etude.dist import objects
from etude_libai.live.split import meshes

aten = torch.ops.aten
_IN_PLACE = (
    aten.normal_.default, aten.uniform_.default, aten.bernoulli_.float, aten.exponential_.default,
    aten.random_.default, aten.random_.to, getattr(aten.random_, "from"), aten.log_normal_.default,
    aten.cauchy_.default, aten.geometric_.default,
)  # fmt: skip
_LIKE = (
    aten.rand_like.default, aten.randn_like.default, aten.randint_like.default, aten.randint_like.low_dtype,
    aten.native_dropout.default,
)  # fmt: skip
#: These need the values of their argument.
_OF_VALUES = (aten.bernoulli.default, aten.multinomial.default, aten.bernoulli_.Tensor)
#: Initialisers that draw until values fit, or look at all values.
_INITIALISERS = ("trunc_normal_", "orthogonal_", "sparse_", "eye_", "dirac_")


def install() -> None:
    rules = meshes.handlers()
    for op in (*_IN_PLACE, *_LIKE):
        rules[op] = _draw_whole
    for op in _OF_VALUES:
        rules[op] = _draw_of_values
    for name in _INITIALISERS:
        theirs = getattr(torch.nn.init, name)
        own = _initialise_whole(theirs)
        for module in list(sys.modules.values()):  # also where it was imported by its name
            if getattr(module, "__dict__", {}).get(name) is theirs:
                setattr(module, name, own)


def _draw_whole(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draw for the whole tensor. On CPUs, DTensor's own way draws the same numbers for different pieces."""
    tensor: DTensor = args[0]
    if op is aten.native_dropout.default:  # needs the values, and gives the mask
        return _draw_of_values(op, args, kwargs)
    plain = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return _kept(op, tensor, op(plain, *args[1:], **kwargs))


def _draw_of_values(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = op(*(meshes.whole(arg) for arg in args), **{name: meshes.whole(value) for name, value in kwargs.items()})
    tensor: DTensor = next(arg for arg in args if isinstance(arg, DTensor))
    return tuple(_kept(op, tensor, one) for one in made) if isinstance(made, tuple) else _kept(op, tensor, made)


def _kept(op: Any, tensor: DTensor, made: torch.Tensor) -> DTensor:
    """Return this rank's piece of what was drawn, in the memory of ``tensor`` for an operation in place."""
    how = meshes.without_sums(tensor.placements)
    if made.shape != tensor.shape:  # of multinomial
        how = meshes.without_sums(how, keep=(0,) if made.ndim == tensor.ndim and made.shape[0] == len(tensor) else ())
    own = meshes.pieces(made, tensor.device_mesh, how)
    if not op._schema.name.endswith("_"):
        return own
    if meshes.is_here(tensor.device_mesh):
        tensor._local_tensor.copy_(own._local_tensor)
    return tensor


def _initialise_whole(initialise: Any) -> Any:
    """Return an initialiser that fills a whole tensor on every process."""

    @wraps(initialise)
    def made(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not isinstance(tensor, DTensor):
            return initialise(tensor, *args, **kwargs)  # type: ignore[no-any-return]
        plain = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        own = meshes.pieces(initialise(plain, *args, **kwargs), tensor.device_mesh, tensor.placements)
        if meshes.is_here(tensor.device_mesh):
            with torch.no_grad():
                tensor._local_tensor.copy_(own._local_tensor)
        return tensor

    return made


# -- generators --------------------------------------------------------------------------------------------------------

#: The state of this process's generator for data; None until :func:`align` sets it.
_data: list[torch.Tensor] = []


def align() -> None:
    """Give all processes the generator state of rank 0. The first time, this process's own becomes that of its data.

    LiBai's scripts seed each process differently, and then every process would draw other numbers for its piece.
    """
    if not _data:
        _data.append(torch.get_rng_state())
    state = torch.get_rng_state()
    torch_dist.broadcast(state, 0)
    torch.set_rng_state(state)
    if torch.cuda.is_available():
        torch.cuda.set_rng_state(objects.broadcast(torch.cuda.get_rng_state()))


@contextmanager
def of_data() -> Iterator[None]:
    """Draw from this process's generator for data inside this context."""
    if not _data:
        yield
        return
    before = torch.get_rng_state()
    torch.set_rng_state(_data[0])
    try:
        yield
    finally:
        _data[0] = torch.get_rng_state()
        torch.set_rng_state(before)


def data_state() -> torch.Tensor | None:
    return _data[0] if _data else None


def restore_data_state(state: torch.Tensor) -> None:
    _data[:] = [state]
