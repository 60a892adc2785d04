"""Steps optimizers that need more than ``step()``: scaled gradients of fp16, and the closure of LBFGS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from etude.core.describe import last_good
from etude.core.forward import Forward
from etude.core.run import Run
from etude.errors import Diverged

#: A loss scale is read every so many updates, and below this one nothing can be learnt.
_SCALE_PERIOD, _LEAST_SCALE = 50, 1e-6


class Stepping:
    """Defines the methods of such a step, in the order they are called."""

    def scale(self, loss: Tensor) -> Tensor:
        return loss

    def unscale(self, optimizers: Sequence[torch.optim.Optimizer]) -> None: ...

    def step(self, run: Run, optimizers: Sequence[torch.optim.Optimizer]) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Scaled(Stepping):
    """Scales the loss, so that small gradients are not lost in fp16, and skips updates whose gradients overflow."""

    def __init__(self, device: torch.device) -> None:
        self.scaler = torch.amp.GradScaler(device.type)
        self._updates = 0

    def scale(self, loss: Tensor) -> Tensor:
        return self.scaler.scale(loss)

    def unscale(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)

    def step(self, run: Run, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Step and update the scale. Now and then, because that reads the device, raise if it has fallen so low that
        every step is skipped."""
        for optimizer in optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()
        self._updates += 1
        if self._updates % _SCALE_PERIOD == 0 and (scale := self.scaler.get_scale()) < _LEAST_SCALE:
            raise Diverged(
                f"the loss scale has fallen to {scale:.1e} at step {run.step + 1}: "
                f"the gradients overflow at every step; {last_good(run)}"
            )

    def state_dict(self) -> dict[str, Any]:
        return self.scaler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scaler.load_state_dict(dict(state))


class Searching(Stepping):
    """Gives optimizers that search (LBFGS) the loss of the batch at other parameters, with gradients."""

    def __init__(self, forward: Forward, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self._forward, self._autocast = forward, autocast

    def step(self, run: Run, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        for optimizer in optimizers:
            if needs_closure(optimizer):
                optimizer.step(partial(self._evaluate, run, optimizer))  # type: ignore[arg-type]
            else:
                optimizer.step()

    def _evaluate(self, run: Run, optimizer: torch.optim.Optimizer) -> Tensor:
        optimizer.zero_grad()
        with self._autocast():
            losses, _, _ = self._forward(run.batch)
        loss = reduce(add, losses.values())
        # Only this optimizer's: the gradients of the others belong to the parameters before the search.
        own = [param for group in optimizer.param_groups for param in group["params"] if param.requires_grad]
        loss.backward(inputs=own)  # type: ignore[no-untyped-call]
        return loss


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether ``optimizer.step`` cannot be called without a function that computes the loss again."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
