"""Updates of split parameters: gradients are added up over data-parallel ranks, clipped by one norm, and shared.

The gradient of a whole parameter is a sum of which every data-parallel rank has a part, until the update. So gradients
of several micro-batches add up without communication.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard

from etude_libai.live import topology
from etude_libai.live.split import files, meshes


def attach(optimizer: Any) -> None:
    """Let an optimizer's step begin with complete gradients. With ZeRO 1 and 2 it gets shares of the parameters."""
    zero = topology.get_dist_util().zero
    shares = Shares(optimizer, at_once=zero == 2) if zero in (1, 2) else None
    optimizer.etude_shares = shares
    optimizer.register_load_state_dict_pre_hook(_scattered)
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: complete(optimizer))
    if shares is not None:
        optimizer.register_step_post_hook(lambda optimizer, args, kwargs: shares.bring_back())


def _scattered(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    return files.scattered(optimizer, state)


def loaded(optimizer: Any) -> None:
    """Let the shares of ZeRO follow weights that were loaded into the model."""
    shares = getattr(optimizer, "etude_shares", None)
    if isinstance(shares, Shares):
        shares.refresh()


def complete(optimizer: Any) -> None:
    """Add up the gradients of all data-parallel ranks. A second call does nothing."""
    shares = getattr(optimizer, "etude_shares", None)
    if shares is not None:
        shares.collect()
        return
    for parameter in _parameters(optimizer):
        complete_gradient(parameter)


def complete_gradient(parameter: torch.Tensor) -> None:
    grad = parameter.grad
    if isinstance(grad, DTensor) and isinstance(parameter, DTensor) and grad.placements != parameter.placements:
        parameter.grad = grad.redistribute(placements=parameter.placements)


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


# -- clipping ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def clip(
    parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False
) -> torch.Tensor:
    """Clip gradients by their norm over all stages, and return it. All processes have to call this together."""
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    for parameter in given:
        complete_gradient(parameter)
    grads = [parameter.grad for parameter in given if parameter.grad is not None]
    norm = _norm(grads, float(norm_type))
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(f"the norm of the gradients is {norm.item()}, so they cannot be clipped")
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        # The same number on all ranks. As a tensor it would be a local one.
        (grad._local_tensor if isinstance(grad, DTensor) else grad).mul_(factor)
    return norm


def _norm(grads: list[Any], kind: float) -> torch.Tensor:
    by_mesh: dict[Any, list[Any]] = {}
    for grad in grads:
        by_mesh.setdefault(grad.device_mesh if isinstance(grad, DTensor) else None, []).append(grad)
    total = torch.zeros((), device=grads[0].device if grads else "cpu")
    for mesh, own in by_mesh.items():
        if mesh is not None and not meshes.is_here(mesh):
            continue
        norms = [torch.linalg.vector_norm(grad, kind) for grad in own]
        norm = torch.linalg.vector_norm(
            torch.stack([one.full_tensor() if isinstance(one, DTensor) else one for one in norms]), kind
        )
        if mesh is None or not any(mesh.get_coordinate() or ()):  # each mesh counts once
            total = torch.maximum(total, norm) if math.isinf(kind) else total + norm**kind
    if None in by_mesh:  # plain gradients are the same everywhere
        total = total if torch_dist.get_rank() == 0 else torch.zeros_like(total)
    torch_dist.all_reduce(total, torch_dist.ReduceOp.MAX if math.isinf(kind) else torch_dist.ReduceOp.SUM)
    return total if math.isinf(kind) else total ** (1.0 / kind)


# -- ZeRO --------------------------------------------------------------------------------------------------------------


class Shares:
    """ZeRO 1 and 2: the optimizer sees this rank's share of each parameter, and has the state of that alone.

    Gradients go to the ranks of their shares, at the update or (``at_once``) after each backward pass. Updated shares
    go to all.
    """

    def __init__(self, optimizer: Any, *, at_once: bool) -> None:
        self.pairs: list[tuple[Any, Any]] = []
        for group in optimizer.param_groups:
            made = []
            for parameter in group["params"]:
                how = _shared(parameter) if isinstance(parameter, DTensor) else None
                share = nn.Parameter(parameter.detach().redistribute(placements=how)) if how else parameter
                if how:
                    self.pairs.append((parameter, share))
                    if at_once:
                        parameter.register_post_accumulate_grad_hook(_Hand(share))
                made.append(share)
            group["params"] = made
        shared = {id(share) for _, share in self.pairs}
        self._plain = [parameter for parameter in _parameters(optimizer) if id(parameter) not in shared]

    def collect(self) -> None:
        for parameter, share in self.pairs:
            if parameter.grad is not None:
                _Hand(share)(parameter)
        for parameter in self._plain:
            complete_gradient(parameter)

    @torch.no_grad()
    def bring_back(self) -> None:
        for parameter, share in self.pairs:
            parameter.copy_(share.redistribute(placements=parameter.placements))

    def refresh(self) -> None:
        """Take the shares from the parameters again, after weights were loaded."""
        with torch.no_grad():
            for parameter, share in self.pairs:
                share.copy_(parameter.redistribute(placements=share.placements))


class _Hand:
    """Hands the gradient of a parameter to its share, and frees it."""

    def __init__(self, share: Any) -> None:
        self.share = share

    @torch.no_grad()
    def __call__(self, parameter: Any) -> None:
        made = parameter.grad.redistribute(placements=self.share.placements)
        self.share.grad = made if self.share.grad is None else self.share.grad + made
        parameter.grad = None


def _shared(parameter: DTensor) -> list[Any] | None:
    """Return how a parameter is shared by data-parallel ranks; None if no free dimension can be divided."""
    how: list[Any] = list(parameter.placements)
    mesh = parameter.device_mesh
    if meshes.DATA not in (mesh.mesh_dim_names or ()):
        return None
    at = mesh.mesh_dim_names.index(meshes.DATA)  # type: ignore[union-attr]
    taken = {one.dim for one in how if one.is_shard()}
    free = [dim for dim in range(parameter.ndim) if dim not in taken and parameter.shape[dim] % mesh.size(at) == 0]
    if not how[at].is_replicate() or not free:
        return None
    how[at] = Shard(free[0])
    return how


def shard_layers(model: nn.Module) -> None:
    """ZeRO 3: FSDP2 shards the parameters, those of each ``TransformerLayer`` of LiBai together."""
    from torch.distributed.fsdp import DataParallelMeshDims, FSDPModule, fully_shard

    mesh = next(parameter.device_mesh for parameter in model.parameters() if isinstance(parameter, DTensor))
    kind = getattr(sys.modules.get("libai.layers"), "TransformerLayer", None)
    layers = [module for module in model.modules() if kind is not None and isinstance(module, kind)]
    for module in (*layers, model):
        fully_shard(module, mesh=mesh, dp_mesh_dims=DataParallelMeshDims(shard=meshes.DATA))
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is the mean over the samples of all ranks already. Gloo cannot scale while it sums.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
