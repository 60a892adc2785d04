"""OneFlow's ``nn.Graph``, run eagerly: ``build`` computes, then the added optimizers step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from etude_libai.live import topology


class GraphModule:
    """The graph settings of a module: ``module.to(nn.graph.GraphModule)``."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def set_stage(self, stage_id: int | None = None, placement: Any = None) -> None:
        """Accept a pipeline stage, without an effect: every process has all layers."""

    @property
    def name_prefix(self) -> str:
        return ""

    @property
    def activation_checkpointing(self) -> bool:
        return isinstance(vars(self.module).get("forward"), partial)

    @activation_checkpointing.setter
    def activation_checkpointing(self, wanted: bool) -> None:
        """Turn recomputing of the module's activations in the backward pass on or off."""
        # A ``forward`` on the object hides that of its class. Removing it restores the class's.
        vars(self.module).pop("forward", None)
        if wanted:
            forward = partial(checkpoint, self.module.forward, use_reentrant=False)
            if topology.splits():
                forward = partial(_moved_first, self.module, forward)
            object.__setattr__(self.module, "forward", forward)


def _moved_first(module: torch.nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Move all inputs to the stage of the module before what is computed again, or they would be sent again, too."""
    home = next((parameter.placement for parameter in module.parameters() if parameter.is_global), None)  # type: ignore[attr-defined]

    def moved(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(moved(item) for item in value)
        return value.to_global(placement=home) if getattr(value, "is_global", False) and home is not None else value

    return forward(*map(moved, args), **{name: moved(value) for name, value in kwargs.items()})


class GraphTensor:
    """The graph settings of a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def set_stage(self, stage_id: int | None = None, placement: Any = None) -> None:
        """Accept a pipeline stage, without an effect: every process has all tensors."""


class GraphConfig:
    """``self.config`` of a graph. Only mixed precision has an effect; other settings are accepted."""

    def __init__(self) -> None:
        self.amp = False

    def enable_amp(self, mode: bool = True, *, dtype: Any = None) -> None:
        self.amp = mode

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("enable_", "allow_", "set_", "prune_", "disable_")):
            return lambda *args, **kwargs: None
        raise AttributeError(f"a graph's config has no {name!r}")


class Graph:
    """The base class of user-defined graphs: override ``build``; ``graph(…)`` runs it.

    With optimizers (:meth:`add_optimizer`) a call is a training step, and ``build`` calls ``backward`` itself. Mixed
    precision is bfloat16, which needs no scaler.
    """

    def __init__(self, *, debug_v_level: int = -1) -> None:
        self.config = GraphConfig()
        self._optimizers: list[tuple[torch.optim.Optimizer, Any]] = []

    def build(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not override build()")

    def add_optimizer(self, optim: torch.optim.Optimizer, *, lr_sch: Any = None, is_sparse: bool = False) -> None:
        self._optimizers.append((optim, lr_sch))

    def set_grad_scaler(self, grad_scaler: Any = None) -> None:
        """Accept a scaler; bfloat16 needs none."""

    def debug(self, *args: Any, **kwargs: Any) -> None:
        """Accept a level of detail, without an effect: nothing is compiled."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        with (
            torch.set_grad_enabled(bool(self._optimizers)),
            torch.autocast(device, torch.bfloat16, enabled=self.config.amp),
        ):
            returned = self.build(*args, **kwargs)
        for optimizer, scheduler in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
            if scheduler is not None:
                scheduler.step()
        return returned

    def state_dict(self) -> dict[str, Any]:
        return {str(index): optimizer.state_dict() for index, (optimizer, _) in enumerate(self._optimizers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for index, (optimizer, _) in enumerate(self._optimizers):
            optimizer.load_state_dict(state[str(index)])
