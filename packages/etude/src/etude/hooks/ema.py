"""EMA and SWA: a running average of the weights, used for evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from etude.core.hook import Hook
from etude.dist.layout.shards import forget_whole, has_shards, is_sharded, local
from etude.errors import ConfigError
from etude.optim.foreach import lerp_
from etude.units import Amount, parse_written

if TYPE_CHECKING:
    from etude.core.run import Run


class Average:
    """Copies of some tensors that follow them. One kernel call updates all of them."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = [tensor.detach().clone() for tensor in tensors]
        self._sharded = has_shards(self.tensors)

    @torch.no_grad()
    def update(self, tensors: Sequence[Tensor], weight: float) -> None:
        """Move the share ``weight`` of the way to ``tensors``; 1 copies them. Each rank moves its own shards."""
        own, others = self.tensors, list(tensors)
        if self._sharded:
            own, others = list(map(local, own)), list(map(local, others))
        lerp_(own, others, weight)


class Ema(Hook):
    """Keeps ``average = (1 - momentum) · average + momentum · weights``, updated with every update of the weights.

    The average takes the place of the weights while an evaluation lasts; training and checkpoints have the weights as
    they are, and the average is a separate part. It starts as a copy of the weights, at ``begin`` if that is given.
    ``buffers`` averages the floating-point buffers too (statistics of batch norms); otherwise the model's are used.
    With several averages in a run, all but one need ``evaluate=False``.
    """

    def __init__(
        self,
        momentum: float = 0.001,
        begin: str | int | Amount | None = None,
        buffers: bool = False,
        evaluate: bool = True,
    ) -> None:
        if not 0.0 < momentum <= 1.0:
            raise ConfigError(f"{type(self).__name__}: momentum is {momentum}; it must be between 0 and 1")
        self.momentum, self.begin, self.buffers, self.evaluate = momentum, begin, buffers, evaluate
        self.average: Average | None = None
        self.updates = 0
        self._names: list[str] = []
        self._tensors: list[Tensor] = []
        self._loaded: dict[str, Tensor] = {}
        self._swapped = False
        self._sharded: torch.nn.Module | None = None
        self._first = 0

    def attach(self, run: Run) -> None:
        """Find the tensors to follow, before a checkpoint is loaded."""
        named: dict[str, Tensor] = dict(run.model.named_parameters())
        if self.buffers:
            named |= {name: buffer for name, buffer in run.model.named_buffers() if buffer.is_floating_point()}
        self._names, self._tensors = list(named), list(named.values())
        self._sharded = run.model if is_sharded(run.model) else None
        self._first = 0 if self.begin is None else parse_written(self.begin).steps(run.steps_per_epoch)
        if self.evaluate and any(isinstance(hook, Ema) and hook.evaluate for hook in run.hooks if hook is not self):
            raise ConfigError("only one average can be evaluated", hint="give the others evaluate: false")

    def before_run(self, run: Run) -> None:
        if not self._names:
            self.attach(run)
        if self._loaded:
            self._take(self._loaded)
        elif self.average is None and self._first == 0:
            self.average = Average(self._tensors)

    def after_step(self, run: Run) -> None:
        if run.step < self._first or getattr(run.update, "pending", None):
            return
        if self.average is None:
            self.average = Average(self._tensors)
        else:
            self.average.update(self._tensors, self.weight())
        self.updates += 1

    def weight(self) -> float:
        """Return how far the next update goes towards the weights."""
        return self.momentum

    def before_eval(self, run: Run) -> None:
        self._swap(self.evaluate)

    def after_eval(self, run: Run) -> None:
        self._swap(False)

    def on_error(self, run: Run) -> None:
        self._swap(False)

    def summary(self) -> str:
        """Name the weights that the reported results belong to."""
        if not self.evaluate or self.average is None:
            return ""
        return f"weights averaged by {type(self).__name__.upper()}; the results are theirs, and etude.load gives them"

    def averaged_state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """Return the state of ``model`` with the average in place of its weights, for an export."""
        if self.average is None:
            return dict(model.state_dict())
        return {**model.state_dict(), **dict(zip(self._names, self.average.tensors, strict=True))}

    def state_dict(self) -> dict[str, Any]:
        tensors = self.average.tensors if self.average is not None else []
        if self._swapped:  # a save inside an evaluation: what the model holds now is the average
            tensors = [tensor.detach() for tensor in self._tensors]
        return {"updates": self.updates, "average": dict(zip(self._names, tensors, strict=False))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates = int(state["updates"])
        self.average, self._swapped = None, False
        self._loaded = dict(state["average"])
        if self._names and self._loaded:
            self._take(self._loaded)

    def _take(self, named: Mapping[str, Tensor]) -> None:
        """Take the average from a checkpoint, in the order of the model; files have their own order."""
        different = sorted(set(named) ^ set(self._names))
        if different:
            raise ConfigError(f"{type(self).__name__}: the checkpoint and the model differ in {different[0]}")
        self.average = Average(
            [named[n].to(t.device, t.dtype) for n, t in zip(self._names, self._tensors, strict=True)]
        )
        self._loaded = {}

    @torch.no_grad()
    def _swap(self, averaged: bool) -> None:
        """Swap the memory of model and average without copying, except where FSDP keeps its own."""
        if self.average is None or self._swapped == averaged:
            return
        self._swapped = averaged
        if self._sharded is not None:
            forget_whole(self._sharded)
            pairs = zip(self._tensors, self.average.tensors, strict=True)
            for own, other in ((local(tensor), local(average)) for tensor, average in pairs):
                held = own.clone()
                own.copy_(other)
                other.copy_(held)
            return
        for place, tensor in enumerate(self._tensors):
            tensor.data, self.average.tensors[place] = self.average.tensors[place], tensor.data


class Swa(Ema):
    """The plain mean of the weights from ``begin`` on, taken after every epoch unless ``every`` says otherwise."""

    every = "1ep"

    def __init__(self, begin: str | int | Amount | None = None, buffers: bool = False, evaluate: bool = True) -> None:
        super().__init__(1.0, begin, buffers, evaluate)

    def weight(self) -> float:
        return 1.0 / (self.updates + 1)
