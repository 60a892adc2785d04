"""Validation between single iterations, as an iteration runner has it in its workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.data.move import move
from etude.data.seeds import kept_generators
from etude.dialects.mmcv1.live.converted.adapters import call_hooks
from etude.dialects.mmcv1.live.converted.runner_view import view_of
from etude.dialects.mmcv1.live.parallel import scatter
from etude.dialects.mmcv1.live.runner.iter_runner import IterLoader
from etude.dialects.mmcv1.live.runner.log_buffer import LogBuffer


class Turns(EngineHook):
    """After every ``trained`` steps, and after the last one, ``validated`` batches of ``data`` through ``val_step``."""

    priority = 105

    def __init__(self, data: Any, trained: int, validated: int) -> None:
        self.data, self.trained, self.validated = data, trained, validated
        self._batches: IterLoader | None = None

    def open(self) -> None:
        """A runner opens all loaders at once: right after that of the training, before its first batch is drawn.

        A run that goes on in its first pass over the data draws what was drawn for it then.
        """
        if self._batches is None:
            self._batches = IterLoader(self.data)
        else:
            torch.empty((), dtype=torch.int64).random_()

    def after_step(self, run: Run) -> None:
        if run.done % self.trained == 0 or run.done == run.total_steps:
            self._validate(run)

    @torch.no_grad()
    def _validate(self, run: Run) -> None:
        assert self._batches is not None
        seen, view, model, device = LogBuffer(), view_of(run), run.model, next(run.model.parameters()).device
        model.eval()
        view.mode = "val"
        for _ in range(self.validated):
            batch = move(scatter(next(self._batches), [-1])[0], device)
            call_hooks("before_val_iter", run)
            outputs: Any = model.val_step(batch)  # type: ignore[operator]
            seen.update(outputs.get("log_vars", {}), outputs.get("num_samples", 1))
            call_hooks("after_val_iter", run)
        view.mode = "train"
        model.train()
        seen.average()
        values = {name: float(value) for name, value in seen.output.items()}
        run.events.write(values, step=run.done, epoch=run.last_epoch, split="val")

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._batches.state_dict() if self._batches is not None else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["position"] is not None:
            with kept_generators():
                self._batches = IterLoader(self.data)
                self._batches.load_state_dict(state["position"])
