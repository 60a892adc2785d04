"""Adapters for converted configs: let Étude's native loop call models, datasets and hooks written for mmcv 1.x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.loop import evaluate
from etude.core.run import Run
from etude.core.update import Step
from etude.data.to_device import move
from etude_openmm.mmcv1.live.parallel import collate as mmcv_collate
from etude_openmm.mmcv1.live.parallel import scatter
from etude_openmm.shared.init import notes as init_notes
from etude_openmm.shared.live.native import ForeignHook


def collate(batch: Sequence[Any]) -> Any:
    """Collate samples as mmcv does, and unpack its containers.

    To do without it, leave out `collate`, if no sample holds a DataContainer.
    """
    return scatter(mmcv_collate(batch, samples_per_gpu=len(batch)), [-1])[0]


class TrainStep:
    """Makes one update from the loss of ``model.train_step``, with the native backward and optimizer step.

    To do without it, let the model's `forward` return the loss, and call `init_weights` when it is made.
    """

    def __init__(self, forward: Any, optimizers: Mapping[str, torch.optim.Optimizer], step: Step) -> None:
        self.model, self.step = forward.model, step
        self.optimizer = next(iter(optimizers.values()))
        if hasattr(self.model, "init_weights"):
            with init_notes.unlogged():
                self.model.init_weights()

    def __call__(self, run: Run, batch: Any) -> Any:
        with self.step.autocast():
            run.outputs = self.model.train_step(batch, self.optimizer)
        self.step.learn(run, run.outputs["loss"])
        for name, value in run.outputs.get("log_vars", {}).items():
            if name != "loss":
                run.events.put(name, value)
        return run.outputs


class Results:
    """A metric that calls ``evaluate`` of the dataset with ``arguments``. ``name`` is one of its results.

    To do without it, give `metrics` with update(output, target) and compute(), such as Accuracy.
    """

    def __init__(self, name: str = "results", **arguments: Any) -> None:
        self.name, self.arguments = name, arguments
        self.dataset: Any = None
        self.reset()

    def reset(self) -> None:
        self.results: list[Any] = []

    def update(self, output: Any, target: Any = None) -> None:
        self.results.extend(output)

    def compute(self) -> dict[str, float]:
        found = self.dataset.evaluate(self.results, **self.arguments)
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float | torch.Tensor)}


class Validation(EngineHook):
    """Makes evaluations call ``model(return_loss=False)`` and give the predictions to ``Results``.

    To do without it, let `forward` return what native metrics take.
    """

    def attach(self, run: Run) -> None:
        (results,) = run.evaluation.metrics.values()
        run.evaluation = Predictions(run, results)


class Predictions:
    """Evaluates the predictions of the model."""

    def __init__(self, run: Run, results: Results) -> None:
        loader: Any = run.data["val"]
        self.model, self.results, self.metrics = run.model, results, {results.name: results}
        results.dataset = loader.dataset

    def begin(self) -> None:
        self.results.reset()

    @torch.no_grad()
    def step(self, run: Run, batch: Any) -> dict[str, Any]:
        device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        self.results.update(self.model(return_loss=False, **move(batch, device)))
        return {}

    def end(self) -> dict[str, float]:
        return self.results.compute()

    def losses(self, run: Run, loader: Any) -> dict[str, float]:
        """Run a validation epoch of a workflow, which records what ``model.val_step`` logs."""
        steps = ValSteps(self.model, run.metrics)
        evaluate(run, loader, steps)
        run.events.write(steps.means, step=run.done, epoch=run.last_epoch, split="val")
        return steps.means


class ValSteps:
    """Averages what ``model.val_step`` logs, weighted by the samples of each batch."""

    def __init__(self, model: Any, results: Mapping[str, float]) -> None:
        #: The latest results of an evaluation: hooks that want one of them find it.
        self.model, self.results = model, results

    def begin(self) -> None:
        self.sums, self.count = dict[str, float](), 0

    def step(self, run: Run, batch: Any) -> Any:
        outputs = self.model.val_step(batch, next(iter(run.optimizers.values())))
        self.count += outputs["num_samples"]
        for name, value in outputs["log_vars"].items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value) * outputs["num_samples"]
        return outputs

    def end(self) -> dict[str, float]:
        self.means = {name: value / self.count for name, value in self.sums.items()}
        return {**self.results, **self.means}


class Hook(ForeignHook):
    """Wraps a hook that was written for mmcv 1.x.

    To do without it, derive the hook from etude.Hook: its methods get the run, not a runner.
    """

    stages = {
        "before_run": "before_run", "before_epoch": "before_train_epoch", "before_step": "before_train_iter",
        "after_step": "after_train_iter", "after_epoch": "after_train_epoch", "after_run": "after_run",
    }  # fmt: skip

    def acts_at(self, stage: str) -> bool:
        return bool(self.hook.acts_at(stage))
