"""OptimWrapperDict: several optimizers of one model, by name."""

from __future__ import annotations

import warnings
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import torch

from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper


class OptimWrapperDict(OptimWrapper):
    """Holds optim wrappers by name. The model decides which one steps: methods of a single wrapper raise an error."""

    def __init__(self, **optim_wrapper_dict: OptimWrapper) -> None:
        for name, wrapper in optim_wrapper_dict.items():
            assert isinstance(wrapper, OptimWrapper), (
                f"`OptimWrapperDict` only accept OptimWrapper instance, but got {name}: {type(wrapper)}"
            )
        self.optim_wrappers = optim_wrapper_dict

    def update_params(self, loss: torch.Tensor, step_kwargs: Any = None, zero_kwargs: Any = None) -> NoReturn:
        self._refuse("update_params")

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> NoReturn:
        self._refuse("backward")

    def step(self, **kwargs: Any) -> NoReturn:
        self._refuse("step")

    def optim_context(self, model: torch.nn.Module) -> AbstractContextManager[Any]:
        self._refuse("optim_context")

    def _refuse(self, verb: str) -> NoReturn:
        raise NotImplementedError(
            f"`{verb}` should be called by each optimizer separately: there are {', '.join(self.optim_wrappers)}"
        )

    def zero_grad(self, **kwargs: Any) -> None:
        for wrapper in self.optim_wrappers.values():
            wrapper.zero_grad(**kwargs)

    def initialize_count_status(self, model: torch.nn.Module, cur_iter: int, max_iters: int) -> None:
        if any(wrapper._accumulative_counts > 1 for wrapper in self.optim_wrappers.values()):
            warnings.warn(
                "with several optimizers, losses of an incomplete last group are still divided by the full size",
                stacklevel=2,
            )

    @property
    def param_groups(self) -> Any:
        """Return the parameter groups by optimizer name."""
        return {name: wrapper.param_groups for name, wrapper in self.optim_wrappers.items()}

    def get_lr(self) -> dict[str, list[float]]:
        return self._prefixed("get_lr")

    def get_momentum(self) -> dict[str, list[float]]:
        return self._prefixed("get_momentum")

    def _prefixed(self, method: str) -> dict[str, list[float]]:
        return {
            f"{name}.{key}": values
            for name, wrapper in self.optim_wrappers.items()
            for key, values in getattr(wrapper, method)().items()
        }

    def state_dict(self) -> dict[str, Any]:
        return {name: wrapper.state_dict() for name, wrapper in self.optim_wrappers.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name, state in state_dict.items():
            assert name in self.optim_wrappers, (
                f"Mismatched `state_dict`! cannot found {name} among the optimizers {list(self.keys())}"
            )
            self.optim_wrappers[name].load_state_dict(state)

    def items(self) -> ItemsView[str, OptimWrapper]:
        return self.optim_wrappers.items()

    def keys(self) -> KeysView[str]:
        return self.optim_wrappers.keys()

    def values(self) -> ValuesView[OptimWrapper]:
        return self.optim_wrappers.values()

    def __getitem__(self, key: str) -> OptimWrapper:
        assert key in self.optim_wrappers, f"Cannot find {key} in OptimWrapperDict, there is {list(self.keys())}"
        return self.optim_wrappers[key]

    def __contains__(self, key: str) -> bool:
        return key in self.optim_wrappers

    def __iter__(self) -> Iterator[str]:
        return iter(self.optim_wrappers)

    def __len__(self) -> int:
        return len(self.optim_wrappers)

    def __repr__(self) -> str:
        return "".join(f"name: {name}\n{wrapper!r}" for name, wrapper in self.optim_wrappers.items())
