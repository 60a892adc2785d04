"""Adds methods of OneFlow's tensors and modules to torch's classes when it is imported.

Unless tensors are split over processes, every tensor is whole, and "broadcast" on the device it is on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from etude_libai.live import topology
from etude_libai.live.oneflow import promotions as promotions
from etude_libai.live.oneflow.graph_modules import GraphModule
from etude_libai.live.oneflow.placements import placement, sbp

_SBP = (sbp.broadcast,)


def to_global(
    self: Any,
    placement: Any = None,
    sbp: Any = None,
    *,
    grad_sbp: Any = None,
    check_meta: bool = True,
    copy: bool = False,
) -> Any:
    """Return the tensor or the module on the ranks of ``placement``, split as ``sbp`` says.

    If tensors are not split, that is the tensor on the device of ``placement``.
    """
    if topology.splits():
        from etude_libai.live.split import boxing

        return boxing.to_global(self, placement, sbp, grad_sbp)
    return self if placement is None else self.to(placement.device)


def to_local(self: torch.Tensor) -> torch.Tensor:
    """Return the piece of this process: without splitting, the tensor."""
    if is_global(self):
        from etude_libai.live.split import boxing

        return boxing.to_local(self)
    return self


def is_global(self: Any) -> bool:
    """Return whether the tensor is a global one. Without splitting none is."""
    return hasattr(self, "device_mesh")


def _sbp(self: Any) -> tuple[sbp, ...]:
    if is_global(self):
        from etude_libai.live.split import meshes

        return meshes.to_sbp(self.placements)
    return _SBP


def _placement(self: Any) -> placement:
    if is_global(self):
        from etude_libai.live.split import meshes

        return meshes.placement_of(self.device_mesh)
    return placement.all(self.device.type)


def like(constant: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return a constant that every process has, for an operation together with ``other``."""
    if not is_global(other):
        return constant
    from etude_libai.live.split import boxing

    return boxing.like(constant, other)  # type: ignore[no-any-return]


def with_placement(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Let a function of torch take ``placement`` and ``sbp``."""

    @wraps(make)
    def made(*args: Any, placement: Any = None, sbp: Any = None, **kwargs: Any) -> torch.Tensor:
        if placement is None:
            return make(*args, **kwargs)
        whole = make(*args, **{**kwargs, "device": placement.device})
        if not topology.splits():
            return whole
        from etude_libai.live.split import meshes

        mesh = meshes.mesh_of(placement)
        own = meshes.pieces(whole.detach(), mesh, meshes.to_torch(sbp, mesh, whole.ndim))
        return own.requires_grad_(whole.requires_grad)

    return made


def _add(owner: type, name: str, value: Any) -> None:
    if not hasattr(owner, name):
        setattr(owner, name, value)


_add(torch.Tensor, "to_global", to_global)
_add(torch.Tensor, "to_local", to_local)
_add(torch.Tensor, "sbp", property(_sbp))
_add(torch.Tensor, "placement", property(_placement))
_add(torch.Tensor, "is_global", property(is_global))
_add(torch.Tensor, "is_local", property(lambda self: not is_global(self)))
_add(torch.nn.Module, "to_global", to_global)

_module_to = torch.nn.Module.to


def _to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the graph settings for ``module.to(nn.graph.GraphModule)``, as in OneFlow; else call torch's ``to``."""
    if len(args) == 1 and isinstance(args[0], type):
        return GraphModule(self) if issubclass(args[0], GraphModule) else self
    return _module_to(self, *args, **kwargs)


torch.nn.Module.to = _to  # type: ignore[method-assign]
