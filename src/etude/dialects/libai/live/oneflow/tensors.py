"""Methods of OneFlow's tensors and modules that torch's lack. Importing this module adds them to torch's classes.

A process holds whole tensors, so every tensor is "broadcast" on the device it is on.
"""

from __future__ import annotations

from typing import Any

import torch

from etude.dialects import ownership
from etude.dialects.libai.live.oneflow.graph_modules import GraphModule
from etude.dialects.libai.live.oneflow.placements import placement, sbp

_SBP = (sbp.broadcast,)


def to_global(self: torch.Tensor, placement: Any = None, sbp: Any = None, **kwargs: Any) -> torch.Tensor:
    """Return the tensor, on the device of ``placement``."""
    return self if placement is None else self.to(placement.device)


def to_local(self: torch.Tensor) -> torch.Tensor:
    """Return the tensor."""
    return self


def module_to_global(self: torch.nn.Module, placement: Any = None, sbp: Any = None, **kwargs: Any) -> torch.nn.Module:
    """Return the module, on the device of ``placement``."""
    return self if placement is None else self.to(placement.device)


def _placement(self: torch.Tensor) -> placement:
    return placement.all(self.device.type)


def _add(owner: type, name: str, value: Any) -> None:
    if not hasattr(owner, name):
        setattr(owner, name, value)


_add(torch.Tensor, "to_global", to_global)
_add(torch.Tensor, "to_local", to_local)
_add(torch.Tensor, "sbp", property(lambda self: _SBP))
_add(torch.Tensor, "placement", property(_placement))
#: Code that finds a tensor to be global turns it into a local one first: whole tensors need neither.
_add(torch.Tensor, "is_global", False)
_add(torch.Tensor, "is_local", True)
_add(torch.nn.Module, "to_global", module_to_global)

_module_to = torch.nn.Module.to


def _to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """``module.to(nn.graph.GraphModule)`` is OneFlow's way to a module's graph settings; all else is torch's."""
    if len(args) == 1 and isinstance(args[0], type):
        return GraphModule(self) if issubclass(args[0], GraphModule) else self
    return _module_to(self, *args, **kwargs)


torch.nn.Module.to = _to  # type: ignore[method-assign]

_view = torch.Tensor.view


def _view_or_copy(self: torch.Tensor, *shape: Any) -> torch.Tensor:
    try:
        return _view(self, *shape)
    except RuntimeError:
        return self.reshape(*shape)


if ownership.version("libai").startswith("0.1."):
    # OneFlow's tensors were always contiguous when LiBai 0.1 was written: a view of any tensor was possible.
    torch.Tensor.view = _view_or_copy  # type: ignore[method-assign,assignment]
