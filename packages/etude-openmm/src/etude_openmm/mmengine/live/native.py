"""Adapters for converted configs: let Étude's native loop call models, metrics and hooks written for MMEngine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.core.update import Step
from etude_openmm.mmengine.live.evaluation import Evaluator
from etude_openmm.mmengine.live.hooks.hook import acts_at
from etude_openmm.mmengine.live.model.base_model import BaseModel
from etude_openmm.mmengine.live.passes import ValLosses
from etude_openmm.shared.live.native import ForeignHook


class TrainStep:
    """Makes one update from the losses of ``model(mode="loss")``, with the native backward and optimizer step.

    To do without it, let the model's `forward` return its losses, and call `init_weights` when it is made.
    """

    def __init__(self, forward: Any, optimizers: Mapping[str, torch.optim.Optimizer], step: Step) -> None:
        self.model: BaseModel = forward.model
        self.step = step
        if hasattr(self.model, "init_weights"):
            self.model.init_weights()

    def __call__(self, run: Run, batch: Any) -> Any:
        with self.step.autocast():
            data = self.model.data_preprocessor(batch, True)
            loss, run.outputs = self.model.parse_losses(self.model._run_forward(data, mode="loss"))
        self.step.learn(run, loss)
        for name, value in run.outputs.items():
            if name != "loss":
                run.events.put(name, value.detach())
        return run.outputs


class Validation(EngineHook):
    """Makes evaluations call ``model.val_step`` and give its predictions to the metrics, as in MMEngine.

    To do without it, let `forward` return what native metrics take, with update(output, target) and compute().
    """

    def attach(self, run: Run) -> None:
        loader: Any = run.data["val"]
        run.evaluation = Predictions(run.model, list(run.evaluation.metrics.values()), loader.dataset)


class Predictions:
    """Evaluates the predictions of ``model.val_step``."""

    def __init__(self, model: Any, metrics: list[Any], dataset: Any) -> None:
        self.model, self.evaluator, self.dataset = model, Evaluator(metrics), dataset
        self.metrics = {type(metric).__name__: metric for metric in metrics}
        if hasattr(dataset, "metainfo"):
            self.evaluator.dataset_meta = dataset.metainfo

    def begin(self) -> None:
        self._losses = ValLosses("val")
        for metric in self.evaluator.metrics:
            metric.reset()

    @torch.no_grad()
    def step(self, run: Run, batch: Any) -> Any:
        outputs = self._losses.take(self.model.val_step(batch))
        self.evaluator.process(data_samples=outputs, data_batch=batch)
        return outputs

    def end(self) -> dict[str, float]:
        found = self.evaluator.evaluate(len(self.dataset)) | (self._losses.means() if self._losses else {})
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float | torch.Tensor)}


class Hook(ForeignHook):
    """Wraps a hook that was written for MMEngine.

    To do without it, derive the hook from etude.Hook: its methods get the run, not a runner.
    """

    stages = {
        "before_run": "before_run", "before_train": "before_train", "before_epoch": "before_train_epoch",
        "before_step": "before_train_iter", "after_step": "after_train_iter", "after_epoch": "after_train_epoch",
        "before_eval": "before_val_epoch", "before_eval_step": "before_val_iter", "after_eval_step": "after_val_iter",
        "after_eval": "after_val_epoch", "after_train": "after_train", "after_run": "after_run",
    }  # fmt: skip
    _batch = 0

    def acts_at(self, stage: str) -> bool:
        return acts_at(self.hook, stage)

    def arguments(self, stage: str, run: Run) -> dict[str, Any]:
        if stage == "after_val_epoch":
            return {"metrics": run.metrics}
        if stage == "before_val_epoch":
            self._batch = 0
        if not stage.endswith("_iter"):
            return {}
        index = run.step_in_epoch if "train" in stage else self._batch
        self._batch += stage == "after_val_iter"
        outputs = {"outputs": run.outputs} if stage.startswith("after") else {}
        return {"batch_idx": index, "data_batch": run.batch, **outputs}
