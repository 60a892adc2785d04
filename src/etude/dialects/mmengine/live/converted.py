"""What converted configs name: parts of MMEngine at work in the native engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.core.state import Generators
from etude.data.seeds import kept_generators
from etude.dialects.mmengine.live import exact, registry
from etude.dialects.mmengine.live.amp import autocast
from etude.dialects.mmengine.live.data.sampler import InfiniteSampler
from etude.dialects.mmengine.live.evaluator.evaluator import Evaluator
from etude.dialects.mmengine.live.hooks.early_stopping_hook import EarlyStoppingHook
from etude.dialects.mmengine.live.hooks.ema_hook import EMAHook
from etude.dialects.mmengine.live.runner.building import schedulers_of
from etude.dialects.mmengine.live.val_losses import ValLosses
from etude.dialects.openmm.raw import restored
from etude.dialects.openmm.scope import init_default_scope
from etude.registry import COLLATES, DATASETS, HOOKS, METRICS, MODELS, SAMPLERS, UPDATES


@MODELS.register(name="mmengine.Model")
def model(config: Mapping[str, Any], scope: str = "mmengine") -> Any:
    """The model of the registries; the hook ``mmengine.Data`` initialises its weights when there are data."""
    init_default_scope(scope)
    return registry.MODELS.build(restored(config))


@DATASETS.register(name="mmengine.Dataset")
def dataset(config: Mapping[str, Any]) -> Any:
    made = registry.DATASETS.build(restored(config))
    if hasattr(made, "full_init"):
        made.full_init()
    return made


@SAMPLERS.register(name="mmengine.Sampler")
def sampler(dataset: Any, config: Mapping[str, Any], seed: int) -> Any:
    with kept_generators():
        made = registry.DATA_SAMPLERS.build(restored(config), default_args={"dataset": dataset, "seed": seed})
    return Endless(made) if isinstance(made, InfiniteSampler) else made


class Endless:
    """An order that never ends says no length: it is asked for indices as batches are made."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)


@COLLATES.register(name="mmengine.Collate")
class Collate:
    """A collate function of the registry ``FUNCTIONS``."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        given = restored(config or {"_class_": "pseudo_collate"})
        name = given.pop("type")
        self.function = registry.FUNCTIONS.get(name) if isinstance(name, str) else name
        self.args = given

    def __call__(self, batch: Sequence[Any]) -> Any:
        return self.function(batch, **self.args)


@UPDATES.register(name="mmengine.TrainStep")
class TrainStep:
    """``model.train_step(batch, optim_wrapper)`` around the native optimizer."""

    def __init__(
        self, forward: Any, optimizers: Mapping[str, torch.optim.Optimizer], wrapper: Mapping[str, Any] | None = None
    ) -> None:
        self.model = forward.model
        optimizer = next(iter(optimizers.values()))
        self.wrapper = registry.OPTIM_WRAPPERS.build(
            {"type": "OptimWrapper", **restored(wrapper or {}), "optimizer": optimizer}
        )
        self._begun = False
        self._loaded: Mapping[str, Any] | None = None

    def __call__(self, run: Run, batch: Any) -> Any:
        if not self._begun:
            self.wrapper.initialize_count_status(self.model, run.step, run.total_steps or -1)
            if self._loaded is not None:
                exact.put_back(self.wrapper, self._loaded)
            self._begun = True
        run.outputs = self.model.train_step(batch, self.wrapper)
        for name, value in run.outputs.items():
            run.events.put(name, value)
        return run.outputs

    def state_dict(self) -> dict[str, Any]:
        """Batches of an unfinished group, and the scale of the loss; the optimizer is a part of its own."""
        scaler = getattr(self.wrapper, "loss_scaler", None)
        return {**exact.unfinished(self.wrapper), "loss_scaler": scaler.state_dict() if scaler else {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Taken when the first batch comes: the wrapper begins to count anew there."""
        self._loaded = state
        if state.get("loss_scaler"):
            self.wrapper.loss_scaler.load_state_dict(dict(state["loss_scaler"]))


@HOOKS.register(name="mmengine.ParamSchedulers")
class ParamSchedulers(EngineHook):
    """MMEngine's parameter schedulers: those by iteration move after every step, those by epoch after every epoch."""

    priority = 65

    def __init__(self, schedulers: Sequence[Mapping[str, Any]]) -> None:
        self._configs = [restored(config) for config in schedulers]
        self.schedulers: list[Any] = []

    def attach(self, run: Run) -> None:
        """Schedulers act on the optimizer when they are made, before a checkpoint is loaded."""
        wrapper: Any = getattr(run.update, "wrapper", next(iter(run.optimizers.values())))
        self.schedulers = schedulers_of(
            self._configs,
            wrapper,
            max_epochs=run.max_epochs if run.max_epochs is not None else 1,
            max_iters=run.total_steps,
            epoch_length=run.steps_per_epoch or 1,
        )

    def before_run(self, run: Run) -> None:
        if not self.schedulers:
            self.attach(run)

    def after_step(self, run: Run) -> None:
        for scheduler in self.schedulers:
            if not scheduler.by_epoch:
                scheduler.step()

    def after_epoch(self, run: Run) -> None:
        for scheduler in self.schedulers:
            if scheduler.by_epoch:
                scheduler.step()

    def after_eval(self, run: Run) -> None:
        for scheduler in self.schedulers:
            if scheduler.by_epoch and getattr(scheduler, "need_val_args", False):
                scheduler.step(run.metrics)

    def state_dict(self) -> dict[str, Any]:
        return {str(index): scheduler.state_dict() for index, scheduler in enumerate(self.schedulers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for index, scheduler in enumerate(self.schedulers):
            scheduler.load_state_dict(dict(state[str(index)]))


@METRICS.register(name="mmengine.Evaluator")
class Results:
    """The metrics of MMEngine's evaluator; the hook ``mmengine.Validation`` gives them what they want to see."""

    name = "evaluator"

    def __init__(self, config: Any) -> None:
        self.evaluator = Evaluator(restored(config))

    def reset(self) -> None:
        """Metrics forget by themselves, once they have computed."""

    def update(self, output: Any, target: Any) -> None:
        self.evaluator.process(data_samples=output, data_batch=target)

    def compute(self) -> dict[str, Any]:
        return self.evaluator.evaluate(-1)


class ModelEvaluation:
    """An evaluation by the model's ``val_step`` and an evaluator, as MMEngine's validation loop has it."""

    def __init__(self, model: Any, evaluator: Evaluator, dataset: Any, *, fp16: bool) -> None:
        self.model, self.evaluator, self.dataset, self.fp16 = model, evaluator, dataset, fp16
        #: By name, for who asks what can be measured.
        self.metrics = {type(metric).__name__: metric for metric in evaluator.metrics}
        if hasattr(dataset, "metainfo"):
            evaluator.dataset_meta = dataset.metainfo

    def begin(self) -> None:
        """Training draws the same random numbers afterwards as without an evaluation."""
        self._generators = Generators().state_dict()
        self._losses = ValLosses("val")
        for metric in self.evaluator.metrics:
            metric.results.clear()

    @torch.no_grad()
    def step(self, run: Run, batch: Any) -> Any:
        with autocast(enabled=self.fp16):
            outputs = self._losses.take(self.model.val_step(batch))
        self.evaluator.process(data_samples=outputs, data_batch=batch)
        return outputs

    def end(self) -> dict[str, float]:
        found = self.evaluator.evaluate(len(self.dataset)) | (self._losses.means() if self._losses else {})
        Generators().load_state_dict(self._generators)
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float | torch.Tensor)}


@HOOKS.register(name="mmengine.Validation")
class Validation(EngineHook):
    """Has evaluations be done as MMEngine's ``ValLoop`` does them."""

    priority = 0

    def __init__(self, fp16: bool = False) -> None:
        self.fp16 = fp16

    def attach(self, run: Run) -> None:
        results = next(metric for metric in run.evaluation.metrics.values() if isinstance(metric, Results))
        loader: Any = run.data["val"]
        run.evaluation = ModelEvaluation(run.model, results.evaluator, loader.dataset, fp16=self.fp16)


class _Runner:
    """What hooks of MMEngine's ask a runner for."""

    def __init__(self, run: Run) -> None:
        self.run, self.model, self._resume = run, run.model, True
        self.max_epochs, self.max_iters = run.max_epochs, run.total_steps

    @property
    def epoch(self) -> int:
        return self.run.epoch

    @property
    def iter(self) -> int:
        return self.run.step


@HOOKS.register(name="mmengine.EMA")
class Ema(EngineHook):
    """MMEngine's ``EMAHook`` with its arguments: an average that evaluations use in place of the weights."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.hook = EMAHook(**restored(config or {}))

    def attach(self, run: Run) -> None:
        self._runner = _Runner(run)
        self.hook.before_run(self._runner)

    def before_train(self, run: Run) -> None:
        self.hook.before_train(self._runner)

    def after_step(self, run: Run) -> None:
        self.hook.after_train_iter(self._runner, run.step)

    def before_eval(self, run: Run) -> None:
        self.hook.before_val_epoch(self._runner)

    def after_eval(self, run: Run) -> None:
        self.hook.after_val_epoch(self._runner)

    def on_error(self, run: Run) -> None:
        self.hook.cut_evaluation(self._runner)

    @property
    def average(self) -> torch.nn.Module:
        """The averaged model."""
        return self.hook._average

    def state_dict(self) -> dict[str, Any]:
        swapped = self.hook._swapped
        self.hook.cut_evaluation(self._runner)
        state = {name: tensor.clone() for name, tensor in self.average.state_dict().items()}
        if swapped:
            self.hook.before_val_epoch(self._runner)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.average.load_state_dict(dict(state))


@HOOKS.register(name="mmengine.EarlyStopping")
class EarlyStopping(EngineHook):
    """MMEngine's ``EarlyStoppingHook`` with its arguments."""

    priority = 100

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.hook = EarlyStoppingHook(**restored(config))

    def after_eval(self, run: Run) -> None:
        if self.hook.monitor not in run.metrics:
            self.hook._complain(run.metrics)
            return
        stop, reason = self.hook._check_stop_condition(run.metrics[self.hook.monitor])
        if stop:
            run.stop(reason)

    def state_dict(self) -> dict[str, Any]:
        return self.hook.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.hook.load_state_dict(state)
