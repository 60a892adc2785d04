"""What converted configs name: parts of mmcv 1.x at work in the native engine.

``etude convert`` writes native configs; where mmcv's way cannot be said in native words without changing a bit of the
result, they name one of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.dialects.mmcv1.live.hook import HOOKS as MMCV_HOOKS
from etude.dialects.mmcv1.live.log_buffer import LogBuffer
from etude.dialects.mmcv1.live.mmcls.data import build_dataset
from etude.dialects.mmcv1.live.mmcls.models import build_classifier
from etude.dialects.mmcv1.live.optimizers import OPTIMIZERS as MMCV_OPTIMIZERS
from etude.dialects.mmcv1.live.optimizers import build_optimizer
from etude.dialects.openmm import init_notes
from etude.dialects.openmm.raw import restored
from etude.registry import DATASETS, HOOKS, MODELS, OPTIMIZERS, UPDATES


@MODELS.register(name="mmcv1.Model")
def model(config: Mapping[str, Any]) -> Any:
    """The model of mmcls' registries, its weights initialised as the train script does."""
    made = build_classifier(restored(config))
    if hasattr(made, "init_weights"):
        with init_notes.untold():
            made.init_weights()
    return made


@DATASETS.register(name="mmcv1.Dataset")
def dataset(config: Mapping[str, Any], test_mode: bool = False) -> Any:
    """The data of mmcls' registries; ``test_mode`` as an evaluation builds them."""
    return build_dataset(restored(config), {"test_mode": True} if test_mode else None)


@OPTIMIZERS.register(name="mmcv1.Optimizer")
def optimizer(params: Any, config: Mapping[str, Any]) -> Any:
    """An optimizer of mmcv's registry, where users' own are."""
    return MMCV_OPTIMIZERS.build({**restored(config), "params": params})


@UPDATES.register(name="mmcv1.TrainStep")
class TrainStep:
    """``model.train_step``, then what mmcv's OptimizerHook does: clear, backward, clip, step."""

    def __init__(
        self, forward: Any, optimizers: Mapping[str, torch.optim.Optimizer], grad_clip: Mapping[str, Any] | None = None
    ) -> None:
        self.model = forward.model
        self.optimizer = next(iter(optimizers.values()))
        self.grad_clip = dict(grad_clip) if grad_clip else None

    def __call__(self, run: Run, batch: Any) -> Any:
        outputs = self.model.train_step(batch, self.optimizer)
        run.outputs = outputs
        if run.hooks.after_forward:
            run.hooks.after_forward(run)
        self.optimizer.zero_grad()
        outputs["loss"].backward()
        if self.grad_clip is not None:
            self._clip(run)
        if run.hooks.before_update:
            run.hooks.before_update(run)
        self.optimizer.step()
        for name, value in outputs.get("log_vars", {}).items():
            run.events.put(name, value)
        return outputs

    def _clip(self, run: Run) -> None:
        parameters = [p for p in self.model.parameters() if p.requires_grad and p.grad is not None]
        if parameters:
            run.events.put("grad_norm", torch.nn.utils.clip_grad_norm_(parameters, **(self.grad_clip or {})))


@HOOKS.register(name="mmcv1.Groups")
class Groups(EngineHook):
    """The optimizer made by mmcv's constructor, whose rules look at modules, from the ``config`` of the original."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = restored(config)

    def attach(self, run: Run) -> None:
        """Before anybody has looked at the groups."""
        made = build_optimizer(run.model, self.config)
        run.optimizers[next(iter(run.optimizers))] = made
        run.update.optimizer = made  # type: ignore[attr-defined]


class View:
    """As much of a runner as hooks of mmcv look at, read from a native run."""

    mode = "train"
    #: The native store brings everything back by itself.
    restored = None

    def __init__(self, run: Run) -> None:
        self.run = run
        self.log_buffer, self.logger = LogBuffer(), logging.getLogger("mmcv")
        self.meta: dict[str, Any] = {}
        self.rank, self.world_size = run.world.rank, run.world.size

    @property
    def epoch(self) -> int:
        return self.run.epoch

    @property
    def iter(self) -> int:
        return self.run.step

    @property
    def inner_iter(self) -> int:
        return self.run.step_in_epoch

    @property
    def max_epochs(self) -> int | None:
        return self.run.max_epochs

    @property
    def max_iters(self) -> int | None:
        return self.run.total_steps

    @property
    def model(self) -> Any:
        return self.run.model

    @property
    def optimizer(self) -> Any:
        return next(iter(self.run.optimizers.values()))

    @property
    def outputs(self) -> Any:
        return self.run.outputs

    @property
    def data_loader(self) -> Any:
        return self.run.data["train"]

    @property
    def work_dir(self) -> str:
        return str(self.run.folder or ".")


_STAGES = {
    "before_run": "before_run", "before_epoch": "before_train_epoch", "before_step": "before_train_iter",
    "after_step": "after_train_iter", "after_epoch": "after_train_epoch", "after_run": "after_run",
}  # fmt: skip


@HOOKS.register(name="mmcv1.Hook")
class Hook(EngineHook):
    """A hook of mmcv. ``epochs: false`` leaves out its epoch stages, which an iteration runner never calls."""

    def __init__(self, config: Mapping[str, Any], epochs: bool = True) -> None:
        self.hook = MMCV_HOOKS.build(restored(config))
        self.epochs = epochs
        self._view: View | None = None

    @property
    def name(self) -> str:
        return type(self.hook).__name__

    def calls(self) -> Mapping[str, Callable[[Run], Any]]:
        stages = {
            point: self._caller(stage)
            for point, stage in _STAGES.items()
            if self.hook.acts_at(stage) and (self.epochs or not point.endswith("epoch"))
        }
        return {**stages, "before_run": self.attach} if "before_run" in stages else stages

    def attach(self, run: Run) -> None:
        """Let the hook begin before a checkpoint is loaded: what it adds to the model must be there by then."""
        if self._view is None:
            self._view = View(run)
            self.hook.before_run(self._view)

    def _caller(self, stage: str) -> Callable[[Run], Any]:
        method = getattr(self.hook, stage)

        def call(run: Run) -> None:
            self.attach(run)
            method(self._view)

        return call

    def call(self, stage: str, run: Run) -> None:
        """A stage that is no point of the engine, such as those of validation epochs."""
        if self.hook.acts_at(stage):
            self._caller(stage)(run)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.hook.state_dict()) if hasattr(self.hook, "state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if hasattr(self.hook, "load_state_dict"):
            self.hook.load_state_dict(state)
