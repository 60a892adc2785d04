"""Averages in converted configs whose original saves before it swaps them in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.core.run import Run
from etude.dialects.mmcv1.live.converted.adapters import Hook
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.evaluate import Evaluate
from etude.registry import HOOKS


@HOOKS.register(name="mmcv1.Average")
class Average(Hook):
    """An EMAHook that acts after the original's CheckpointHook: its files hold the raw weights as the model.

    So do the checkpoints of this run, with the averages in the ``ema_`` buffers, although they are written at the end
    of the epoch, when the two have changed places. One that is the best holds what was measured, as the original's
    file of the best does.
    """

    _run: Run | None = None

    def attach(self, run: Run) -> None:
        super().attach(run)
        if self._run is None:
            self._run = run
            run.extra_parts["model"] = Saved(self, run)

    @property
    def exchanged(self) -> bool:
        """Whether what is saved now has raw weights and averages the other way round than the model."""
        ema: Any = self.hook
        return bool(ema.state_dict()["swapped"]) and not self._is_measured()

    def _is_measured(self) -> bool:
        """Whether this is the best so far, by an evaluation of the averages."""
        assert self._run is not None
        hooks = list(self._run.hooks)
        averages = any(isinstance(hook, Evaluate) and hook.priority > self.priority for hook in hooks)
        return averages and any(isinstance(hook, Checkpoint) and hook.has_new_best(self._run) for hook in hooks)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "exchanged": self.exchanged}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The weights are loaded; a run that goes on has them as they were when they were saved."""
        ema: Any = self.hook
        super().load_state_dict({"swapped": state["swapped"]})
        ema._swapped = bool(state["swapped"])
        if state["exchanged"]:
            ema._swap_ema_parameters()


class Saved:
    """The model as a part of a checkpoint."""

    def __init__(self, average: Average, run: Run) -> None:
        self.average, self.run = average, run

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self.run.model.state_dict()
        ema: Any = self.average.hook
        for name, buffer in ema.param_ema_buffer.items() if self.average.exchanged else ():
            state[name], state[buffer] = state[buffer], state[name]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.run.model.load_state_dict(state)
