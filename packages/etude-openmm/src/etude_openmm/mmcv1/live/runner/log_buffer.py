"""mmcv's LogBuffer: collects values until a log line is due, and averages them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


class LogBuffer:
    """Collects values to log. ``update`` appends; ``average`` fills ``output``, which loggers write and clear.

    A value may be a tensor: it stays on its device until :meth:`average` needs the number.
    """

    def __init__(self) -> None:
        self.val_history: OrderedDict[str, list[Any]] = OrderedDict()
        self.n_history: OrderedDict[str, list[Any]] = OrderedDict()
        self.output: OrderedDict[str, Any] = OrderedDict()
        self.ready = False

    def clear(self) -> None:
        """Clear the histories and the output."""
        self.val_history.clear()
        self.n_history.clear()
        self.clear_output()

    def clear_output(self) -> None:
        """Clear the output, but not the histories."""
        self.output.clear()
        self.ready = False

    def update(self, vars: Mapping[str, Any], count: int = 1) -> None:
        """Append one value per name, each with the weight ``count``."""
        if not isinstance(vars, dict):
            raise AssertionError(f"log_vars must be a dict, got {type(vars).__name__}")
        for name, value in vars.items():
            if name in self.val_history:
                self.val_history[name].append(value)
                self.n_history[name].append(count)
            else:
                self.val_history[name], self.n_history[name] = [value], [count]

    def average(self, n: int = 0) -> None:
        """Write the weighted mean of the last ``n`` values of every name (0: of all) to ``output``."""
        if n < 0:
            raise AssertionError(f"the number of values to average must not be negative, got {n}")
        for name, history in self.val_history.items():
            # With n = 0 this is the whole list, as mmcv wants it.
            recent = history[-n:]
            numbers = _numbers(recent)
            if numbers is not recent:
                history[-n:] = numbers
            values, weights = np.array(numbers), np.array(self.n_history[name][-n:])
            # These are the bits of np.sum, as in mmcv, without the cost of its wrapper at every log line.
            self.output[name] = np.add.reduce(values * weights) / np.add.reduce(weights)
        self.ready = True


def _numbers(values: list[Any]) -> list[Any]:
    """Return ``values`` as numbers; tensors are copied from the device in one transfer."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        return values
    if len(tensors) == len(values) and len({value.dtype for value in tensors}) == 1:
        numbers = _stacked(tensors)
        if numbers is not None:
            return numbers
    return [value.item() if isinstance(value, torch.Tensor) else value for value in values]


def _stacked(tensors: list[torch.Tensor]) -> list[Any] | None:
    """Return the values of 0-d tensors on one device; None for other tensors."""
    try:
        with torch.no_grad():
            stacked = torch.stack(tensors)
    except RuntimeError:
        return None
    return stacked.tolist() if stacked.ndim == 1 else None
