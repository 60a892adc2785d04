"""Adapters for configs converted from mmcv 1.x and MMEngine: plain settings, and hooks that need a runner."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from etude.core.hook import Call, WrappingHook
from etude.core.run import Run
from etude.dialects import imports
from etude.errors import UserCodeError
from etude_openmm.shared.convert import RUNNER, restored

#: A converted config imports this module before the user's modules, which import the old names.
imports.install()


def settings(of: Any) -> Any:
    """Return the original dicts, lists and tuples of a config from which a class of yours builds its own parts.

    To do without it, let the class take the parts themselves; a native config builds nested `type`s.
    """
    return restored(of)


class RunnerView:
    """Gives hooks of mmcv and MMEngine the counters and parts of a run under the names that they use."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rank, self.world_size = run.world.rank, run.world.size
        self.logger = logging.getLogger("etude")

    @property
    def optimizer(self) -> Any:
        return next(iter(self.run.optimizers.values()))

    #: Hooks use its ``param_groups``, which an optimizer has, too.
    optim_wrapper = optimizer

    @property
    def train_dataloader(self) -> Any:
        return self.run.data["train"]

    data_loader = train_dataloader

    @property
    def log_buffer(self) -> RunnerView:
        return self

    def update(self, values: Mapping[str, Any], count: int = 1) -> None:
        """Record the values that a hook puts into ``runner.log_buffer``; the log line has their mean."""
        for name, value in values.items():
            self.run.events.put(name, value)

    @property
    def work_dir(self) -> str:
        return str(self.run.folder or ".")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UserCodeError(f"a converted hook asks for runner.{name}, which is not one of {', '.join(RUNNER)}")


#: Attribute of the runner → attribute of the run.
_READ = {
    "model": "model", "epoch": "epoch", "iter": "step", "inner_iter": "step_in_epoch", "max_epochs": "max_epochs",
    "max_iters": "total_steps", "outputs": "outputs", "data_batch": "batch",
}  # fmt: skip
for _name, _attribute in _READ.items():
    setattr(RunnerView, _name, property(attrgetter(f"run.{_attribute}")))


class ForeignHook(WrappingHook):
    """Wraps a hook for mmcv or MMEngine in a native run. ``stages`` maps Étude's points to the hook's methods.

    With ``gradients`` it finds those of the update, clipped, as the original optimizers leave them until the next one.
    """

    stages: Mapping[str, str]

    def __init__(self, hook: Any, gradients: bool = False) -> None:
        self.hook, self.gradients = hook, gradients
        self._kept: list[tuple[Any, Any]] = []
        self._view: RunnerView | None = None

    def word_for(self, point: str) -> str:
        return self.stages.get(point, point)

    def acts_at(self, stage: str) -> bool:
        """Return whether the hook overrides ``stage``."""
        raise NotImplementedError

    def arguments(self, stage: str, run: Run) -> dict[str, Any]:
        """Return the arguments of the method in addition to the runner."""
        return {}

    def calls(self) -> Mapping[str, Call]:
        kept = {"before_update": self._keep} if self.gradients else {}
        return kept | {point: self._call(stage) for point, stage in self.stages.items() if self.acts_at(stage)}

    def _keep(self, run: Run) -> None:
        self._kept = [(parameter, parameter.grad) for parameter in run.model.parameters()]

    def _call(self, stage: str) -> Call:
        method = getattr(self.hook, stage)

        def call(run: Run) -> None:
            self._view = self._view or RunnerView(run)
            kept, self._kept = self._kept, []
            for parameter, gradient in kept:
                parameter.grad = gradient
            try:
                method(self._view, **self.arguments(stage, run))
            finally:
                for parameter, _ in kept:
                    parameter.grad = None

        return call

    def state_dict(self) -> dict[str, Any]:
        return dict(self.hook.state_dict()) if hasattr(self.hook, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if hasattr(self.hook, "load_state_dict"):
            self.hook.load_state_dict(dict(state))
