"""The base class of optim wrappers, through which models and hooks use an optimizer."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.optim import Optimizer

_NOTHING: AbstractContextManager[None] = nullcontext()


class BaseOptimWrapper(metaclass=ABCMeta):
    """Wraps an optimizer. Subclasses implement ``update_params`` and its parts: backward, step and zero_grad."""

    #: With several parameter groups: a virtual group that shows the schedule without multipliers, for the log.
    base_param_settings: dict[str, Any] | None = None

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        if optimizer is not None and len(optimizer.param_groups) > 1:
            self.base_param_settings = {"params": torch.tensor([0.0]), **optimizer.defaults}

    @abstractmethod
    def update_params(self, *args: Any, **kwargs: Any) -> None:
        """Update the parameters from a loss."""

    @abstractmethod
    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Compute gradients from a loss."""

    @abstractmethod
    def zero_grad(self, **kwargs: Any) -> None:
        """Clear the gradients."""

    @abstractmethod
    def step(self, **kwargs: Any) -> None:
        """Update the parameters from their gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state, with the virtual base group if there is one."""
        state: dict[str, Any] = self.optimizer.state_dict()
        if self.base_param_settings is not None:
            state["base_param_settings"] = self.base_param_settings
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state of :meth:`state_dict`, without changing the given dict."""
        state = dict(state_dict)
        base = state.pop("base_param_settings", None)
        if base is not None:
            self.base_param_settings = dict(base)
        self.optimizer.load_state_dict(state)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's groups and, behind them, the virtual base group."""
        groups = self.optimizer.param_groups
        return groups if self.base_param_settings is None else [*groups, self.base_param_settings]

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the optimizer's default options."""
        defaults: dict[str, Any] = self.optimizer.defaults
        return defaults

    def get_lr(self) -> dict[str, list[float]]:
        """Return ``lr`` of every group, preceded by ``base_lr`` if there are several groups."""
        rates: dict[str, list[float]] = {}
        if self.base_param_settings is not None:
            rates["base_lr"] = [self.base_param_settings["lr"]]
        rates["lr"] = [group["lr"] for group in self.optimizer.param_groups]
        return rates

    def get_momentum(self) -> dict[str, list[float]]:
        """Return ``momentum`` of every group: its ``momentum``, the first of its ``betas``, or 0."""
        return {"momentum": [_momentum(group) for group in self.optimizer.param_groups]}

    def optim_context(self, model: torch.nn.Module) -> AbstractContextManager[Any]:
        """Return the context manager for preprocessing and forward."""
        return _NOTHING

    def initialize_count_status(self, model: torch.nn.Module, init_counts: int, max_counts: int) -> None:
        """Set how many iterations were made and how many there will be. Wrappers that count override it."""
        return


def _momentum(group: Mapping[str, Any]) -> float:
    if "momentum" in group:
        return float(group["momentum"])
    return float(group["betas"][0]) if "betas" in group else 0.0
