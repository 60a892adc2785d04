"""Averaged models: exponential moving average (EMA) and stochastic weight averaging (SWA)."""

from __future__ import annotations

import math
from abc import abstractmethod
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from etude_openmm.mmengine.live.logging.message_hub import MessageHub
from etude_openmm.shared.logging import log_warning


class BaseAveragedModel(nn.Module):
    """The base class of averaged models. ``update_parameters(model)`` is called after each iteration.

    ``steps`` counts the calls. The first call copies everything. Every ``interval``-th one averages floating tensors:
    parameters, or all of the state with ``update_buffers``. Without it, buffers are copied from the model. A subclass
    implements :meth:`avg_func` for one tensor, or :meth:`avg_all` for all of them at once.
    """

    steps: Tensor

    def __init__(
        self,
        model: nn.Module,
        interval: int = 1,
        device: torch.device | str | None = None,
        update_buffers: bool = False,
    ) -> None:
        super().__init__()
        self.module = deepcopy(model).requires_grad_(False)
        self.interval = interval
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("steps", torch.tensor(0, dtype=torch.long, device=device))
        self.update_buffers = update_buffers
        self._pairs: tuple[nn.Module, _Pairs] | None = None
        self._counted = (self.steps._version, 0)

    @property
    def avg_parameters(self) -> dict[str, Tensor]:
        """Return the averaged tensors by name."""
        return dict(self.module.state_dict()) if self.update_buffers else dict(self.module.named_parameters())

    @abstractmethod
    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: Any) -> None:
        """Update ``averaged_param`` in place."""

    def avg_all(self, averaged: list[Tensor], source: list[Tensor], steps: int) -> None:
        """Update all averaged tensors in place; by default one by one with :meth:`avg_func`."""
        for average, current in zip(averaged, source, strict=True):
            self.avg_func(average, current.to(average.device), self.steps)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Add the model's current weights to the average."""
        steps, pairs = self._count(), self._pairs_with(model)
        if steps == 0:
            _copy(pairs.floating + pairs.others)
        elif steps % self.interval == 0:
            self.avg_all(*_tensors(pairs.floating), steps)
        if not self.update_buffers:
            _copy(pairs.buffers)
        self.steps += 1
        self._counted = (self.steps._version, steps + 1)

    def _count(self) -> int:
        """Return ``steps`` as an int, without reading the device unless other code has written to the buffer."""
        version, count = self._counted
        return count if version == self.steps._version else int(self.steps)

    def _pairs_with(self, model: nn.Module) -> _Pairs:
        if self._pairs is None or self._pairs[0] is not model:
            self._pairs = (model, _Pairs(self, model))
        return self._pairs[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pairs": None, "_counted": (-1, 0)}  # -1 fits no version: the copy reads its buffer


class _Pairs:
    """Pairs the tensors of the average and of the model by slots, because a tensor may be replaced at any time."""

    def __init__(self, average: BaseAveragedModel, model: nn.Module) -> None:
        own, source = _slots(average.module), _slots(model)
        both = [(own[name], source[name]) for name in own if name in source]
        averaged = [pair for pair in both if not pair[0].is_buffer or (average.update_buffers and pair[0].persistent)]
        self.floating = [pair for pair in averaged if pair[0].table[pair[0].name].is_floating_point()]
        self.others = [pair for pair in averaged if not pair[0].table[pair[0].name].is_floating_point()]
        self.buffers = [pair for pair in both if pair[0].is_buffer]


class _Slot(NamedTuple):
    """The place of one parameter or buffer: the dict of its module that holds it, and its name there."""

    table: dict[str, Any]
    name: str
    is_buffer: bool
    persistent: bool


def _slots(module: nn.Module) -> dict[str, _Slot]:
    """Return every parameter and buffer once, even if modules share it."""
    slots: dict[str, _Slot] = {}
    seen: set[int] = set()
    table: Any
    for prefix, part in module.named_modules():
        for is_buffer, table in ((False, part._parameters), (True, part._buffers)):
            for name, tensor in table.items():
                # MMEngine averages a shared tensor twice per step if it has ``update_buffers``.
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    persistent = not is_buffer or name not in part._non_persistent_buffers_set
                    slots[f"{prefix}.{name}"] = _Slot(table, name, is_buffer, persistent)
    return slots


def _tensors(pairs: list[tuple[_Slot, _Slot]]) -> tuple[list[Tensor], list[Tensor]]:
    return [own.table[own.name] for own, _ in pairs], [source.table[source.name] for _, source in pairs]


def _copy(pairs: list[tuple[_Slot, _Slot]]) -> None:
    if pairs:
        torch._foreach_copy_(*_tensors(pairs))


@torch.no_grad()
def swap(average: BaseAveragedModel, model: nn.Module) -> None:
    """Exchange the averaged tensors with the model's, in place."""
    pairs = average._pairs_with(model)
    averaged, source = _tensors(pairs.floating + pairs.others)
    kept = [tensor.clone() for tensor in averaged]
    torch._foreach_copy_(averaged, source)
    torch._foreach_copy_(source, kept)


@torch.no_grad()
def follow(average: BaseAveragedModel, model: nn.Module) -> None:
    """Make the average a plain copy of the model."""
    pairs = average._pairs_with(model)
    _copy(pairs.floating + pairs.others)
    _copy(pairs.buffers)


class StochasticWeightAverage(BaseAveragedModel):
    """Keeps the mean of all weights (SWA)."""

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: Any) -> None:
        averaged_param.add_(source_param - averaged_param, alpha=1 / float(int(steps) // self.interval + 1))

    def avg_all(self, averaged: list[Tensor], source: list[Tensor], steps: int) -> None:
        if type(self).avg_func is not StochasticWeightAverage.avg_func:
            super().avg_all(averaged, source, steps)
            return
        difference = torch._foreach_sub(_on_device_of(source, averaged), averaged)
        torch._foreach_add_(averaged, difference, alpha=1 / float(steps // self.interval + 1))


class ExponentialMovingAverage(BaseAveragedModel):
    """Keeps ``average += momentum * (weights - average)`` (EMA). ``momentum`` is the share of the new weights."""

    def __init__(
        self,
        model: nn.Module,
        momentum: float = 0.0002,
        interval: int = 1,
        device: torch.device | str | None = None,
        update_buffers: bool = False,
    ) -> None:
        super().__init__(model, interval, device, update_buffers)
        assert 0.0 < momentum < 1.0, f"momentum must be in range (0.0, 1.0), but got {momentum}"
        if momentum > 0.5:
            log_warning(
                "The value of momentum in EMA is usually a small number, 0.0002 for example: it is the share of the "
                f"*new* weights, and is {momentum} here"
            )
        self.momentum = momentum

    def share(self, steps: int) -> float:
        """Return the share of the new weights at this step."""
        return self.momentum

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: Any) -> None:
        # lerp_, as in MMEngine: a multiplication and an addition would round differently.
        averaged_param.lerp_(source_param, self.share(int(steps)))

    def avg_all(self, averaged: list[Tensor], source: list[Tensor], steps: int) -> None:
        if type(self).avg_func is ExponentialMovingAverage.avg_func:
            torch._foreach_lerp_(averaged, _on_device_of(source, averaged), self.share(steps))
        else:
            super().avg_all(averaged, source, steps)


class MomentumAnnealingEMA(ExponentialMovingAverage):
    """An EMA that follows the first weights closely: the momentum is at least ``gamma / (gamma + steps)``."""

    def __init__(
        self,
        model: nn.Module,
        momentum: float = 0.0002,
        gamma: int = 100,
        interval: int = 1,
        device: torch.device | str | None = None,
        update_buffers: bool = False,
    ) -> None:
        super().__init__(model, momentum, interval, device, update_buffers)
        assert gamma > 0, f"gamma must be greater than 0, but got {gamma}"
        self.gamma = gamma

    def share(self, steps: int) -> float:
        return max(self.momentum, self.gamma / (self.gamma + steps))


class CosineEMA(ExponentialMovingAverage):
    """MMSelfSup's momentum encoder. Here ``momentum`` is the share that is *kept*; it rises to ``end_momentum``."""

    def __init__(
        self,
        model: nn.Module,
        momentum: float = 0.996,
        end_momentum: float = 1.0,
        interval: int = 1,
        device: torch.device | str | None = None,
        update_buffers: bool = False,
    ) -> None:
        # Past the checks of EMA, which are about the share of the new weights.
        BaseAveragedModel.__init__(self, model, interval, device, update_buffers)
        assert 0.0 <= momentum <= end_momentum <= 1.0, f"0 <= {momentum} <= {end_momentum} <= 1 does not hold"
        self.momentum, self.end_momentum = momentum, end_momentum

    def share(self, steps: int) -> float:
        total = MessageHub.get_current_instance().get_info("max_iters")
        cosine = (math.cos(math.pi * steps / float(total)) + 1) / 2
        return 1 - (self.end_momentum - (self.end_momentum - self.momentum) * cosine)


def _on_device_of(source: list[Tensor], averaged: list[Tensor]) -> list[Tensor]:
    """Return the source tensors on the device of the averaged ones."""
    if source and source[0].device != averaged[0].device:
        return [current.to(average.device) for current, average in zip(source, averaged, strict=True)]
    return source
