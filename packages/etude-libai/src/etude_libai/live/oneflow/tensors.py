"""Adds methods of OneFlow's tensors and modules to torch's classes when it is imported.

A process holds whole tensors, so every tensor is "broadcast" on the device it is on.
"""

from __future__ import annotations

from typing import Any

import torch

from etude_libai.live.oneflow import promotions as promotions
from etude_libai.live.oneflow.graph_modules import GraphModule
from etude_libai.live.oneflow.placements import placement, sbp

_SBP = (sbp.broadcast,)


def to_global(self: Any, placement: Any = None, sbp: Any = None, **kwargs: Any) -> Any:
    """Return the tensor or the module, on the device of ``placement``."""
    return self if placement is None else self.to(placement.device)


def to_local(self: torch.Tensor) -> torch.Tensor:
    """Return the tensor."""
    return self


def _add(owner: type, name: str, value: Any) -> None:
    if not hasattr(owner, name):
        setattr(owner, name, value)


_add(torch.Tensor, "to_global", to_global)
_add(torch.Tensor, "to_local", to_local)
_add(torch.Tensor, "sbp", property(lambda self: _SBP))
_add(torch.Tensor, "placement", property(lambda self: placement.all(self.device.type)))
#: False, because user code converts global tensors to local ones first.
_add(torch.Tensor, "is_global", False)
_add(torch.Tensor, "is_local", True)
_add(torch.nn.Module, "to_global", to_global)

_module_to = torch.nn.Module.to


def _to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the graph settings for ``module.to(nn.graph.GraphModule)``, as in OneFlow; else call torch's ``to``."""
    if len(args) == 1 and isinstance(args[0], type):
        return GraphModule(self) if issubclass(args[0], GraphModule) else self
    return _module_to(self, *args, **kwargs)


torch.nn.Module.to = _to  # type: ignore[method-assign]
