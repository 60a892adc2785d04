"""Pipeline stages: tensors cross from the ranks of one stage to those of another, and gradients back.

The order of passes decides when they cross. A receiving process waits; a sending one does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as torch_dist
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from etude.errors import UserCodeError
from etude_libai.live.split import meshes


class Crossing(Function):
    """Sends a tensor to the ranks at the same places of another mesh, and its gradient back."""

    @staticmethod
    def forward(ctx: Any, tensor: DTensor, mesh: DeviceMesh) -> DTensor:
        ctx.home = tensor.device_mesh
        return sent(tensor, mesh)

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:
        return sent(grad, ctx.home), None


#: Sends under way, which need their tensors.
_pending: list[tuple[Any, torch.Tensor]] = []


def sent(tensor: DTensor, mesh: DeviceMesh) -> DTensor:
    """Return the tensor on the ranks of ``mesh``. Processes in neither mesh do nothing."""
    here = tensor.device_mesh
    if here.shape != mesh.shape:
        return _gathered(tensor, mesh)
    # Sums may travel in parts, but those of an embedding depend on what is known only here.
    plain = [Replicate() if type(how).__name__ == "_MaskPartial" else how for how in tensor.placements]
    tensor = tensor.redistribute(placements=plain)
    rank, own = torch_dist.get_rank(), tensor._local_tensor
    piece = own
    for source, target in zip(here.mesh.flatten().tolist(), mesh.mesh.flatten().tolist(), strict=True):
        if rank == source and rank != target:
            _pending[:] = [(work, kept) for work, kept in _pending if not work.is_completed()]
            _pending.append((torch_dist.isend(packed := own.detach().contiguous(), target), packed))
        elif rank == target and rank != source:
            shape, _ = compute_local_shape_and_global_offset(tensor.shape, mesh, tensor.placements)
            piece = own.new_empty(shape)
            torch_dist.recv(piece, source)
    return meshes.of_piece(piece, mesh, plain, tensor.shape, tensor.stride())


def _gathered(tensor: DTensor, mesh: DeviceMesh) -> DTensor:
    """Return the tensor on a mesh of another shape: whole on each of its ranks."""
    if running():
        raise UserCodeError("a tensor cannot go to ranks of another shape while micro-batches overlap")
    return meshes.pieces(meshes.whole(tensor), mesh, [Replicate()] * mesh.ndim)


def settle() -> None:
    """Wait until everything that was sent has arrived."""
    for work, _ in _pending:
        work.wait()
    _pending.clear()


# -- the order of passes -----------------------------------------------------------------------------------------------

_running: list[str] = []


@contextmanager
def overlapping() -> Iterator[None]:
    """Mark that processes run different micro-batches, so that none may wait for all others."""
    _running.append("1f1b")
    try:
        yield
    finally:
        _running.pop()


def running() -> bool:
    return bool(_running)


def one_forward_one_backward(micro_batches: int, stages: int, stage: int) -> Iterator[tuple[bool, int]]:
    """Yield the passes of a stage in order: whether forward, and of which micro-batch.

    >>> ["FB"[not forward] + str(at) for forward, at in one_forward_one_backward(3, 2, 0)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    ahead = min(micro_batches, stages - stage)
    for at in range(ahead):
        yield True, at
    for at in range(micro_batches):
        yield False, at
        if ahead + at < micro_batches:
            yield True, ahead + at
