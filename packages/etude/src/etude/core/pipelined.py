"""The update and the forward pass of a model that lies in stages on several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from etude.core.describe import FORWARD
from etude.core.forward import Forward, Losses
from etude.core.run import Run
from etude.core.update import Step, weight_of
from etude.dist.layout.pipeline import Pipe
from etude.dist.layout.shards import whole_in


class PipelinedForward(Forward):
    """Passes a batch through all stages. The ranks of the last one have its output and losses, the others none."""

    def __init__(self, pipe: Pipe, losses: Mapping[str, Any], model: Any) -> None:
        super().__init__(model, losses)
        self.pipe = pipe

    def __call__(self, batch: Any) -> tuple[Losses, Any, Any]:
        inputs, target = self.split(batch)
        output = self.pipe.forward(_positional(inputs))
        return ({} if output is None else self.compute(output, target)), output, target

    def call(self, inputs: Any) -> Any:
        """Return the output on every rank."""
        return self.pipe.shared(whole_in(self.pipe.forward(_positional(inputs))))

    def compute(self, output: Any, target: Any) -> Losses:
        return {name: loss(output, target) for name, loss in self.losses.items()}


class PipelinedStep(Step):
    """Trains on each batch in parts, by the schedule of the pipeline, whose last stage computes the losses.

    Forward and backward passes of the parts overlap, so hooks at ``after_forward`` act when both are done, and the
    outputs of the run have no output of the model.
    """

    forward: PipelinedForward

    def __init__(self, forward: PipelinedForward, optimizers: Mapping[str, Any], **settings: Any) -> None:
        super().__init__(forward, optimizers, **settings)
        self.pipe = forward.pipe
        self.pipe.autocast = self.autocast
        numbers: list[int] = []
        whole = 0
        for optimizer in self.optimizers:
            numbers += [whole + number for number in optimizer.etude_numbers]  # type: ignore[attr-defined]
            whole += len([one for group in optimizer.etude_groups for one in group])  # type: ignore[attr-defined]
        #: Of each parameter: its number among those of the whole model.
        self.numbers = numbers

    def __call__(self, run: Run, batch: Any) -> dict[str, Any]:
        inputs, target = self.forward.split(batch)
        run.peers.sync(self.pending + 1 >= self._group_size(run))
        run.acting = FORWARD
        scale = weight_of(run) / self._group_size(run)
        losses = self.pipe.train(_positional(inputs), target, self.forward.compute, scale)
        loss, run.acting = reduce(add, losses.values()), None
        run.outputs = {"losses": losses, "loss": loss, "output": None, "target": target}
        run.hooks.after_forward(run)
        # The gradients are there already; those of a bad loss are dropped.
        run.peers.ask(run.step, bad=not self._guard.is_finite(loss))
        run.peers.read_votes()
        if run.peers.bad:
            self._drop(run, losses, loss)
            return run.outputs  # type: ignore[no-any-return]
        self.pending += 1
        self._record(run, losses, loss)
        if self.pending >= self._group_size(run):
            self.apply(run)
        return run.outputs  # type: ignore[no-any-return]

    def learn(self, run: Run, loss: Tensor | Losses) -> None:
        raise RuntimeError("a pipeline computes its losses itself")

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with gradients by the numbers of parameters in the whole model."""
        state = super().state_dict()
        if "grads" in state:
            state["grads"] = {str(self.numbers[int(key)]): grad for key, grad in state["grads"].items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        own = {str(number): str(index) for index, number in enumerate(self.numbers)}
        grads = {own[key]: grad for key, grad in state.get("grads", {}).items() if key in own}
        super().load_state_dict({**state, "grads": grads})


def _positional(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, Mapping):
        return tuple(inputs.values())
    return tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
