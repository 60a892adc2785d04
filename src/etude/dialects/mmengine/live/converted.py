"""What converted configs name: parts of MMEngine at work in the native engine."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.data.seeds import kept_generators
from etude.dialects import imports
from etude.dialects.mmengine.live import exact, registry
from etude.dialects.mmengine.live.amp import autocast
from etude.dialects.mmengine.live.converted_view import View
from etude.dialects.mmengine.live.data.sampler import InfiniteSampler
from etude.dialects.mmengine.live.evaluator.evaluator import Evaluator
from etude.dialects.mmengine.live.hooks.early_stopping_hook import EarlyStoppingHook
from etude.dialects.mmengine.live.hooks.ema_hook import EMAHook
from etude.dialects.mmengine.live.loops import calc_dynamic_intervals
from etude.dialects.mmengine.live.runner.building import multiply_lr, optim_wrapper_of, schedulers_of
from etude.dialects.mmengine.live.val_losses import ValLosses
from etude.dialects.openmm.escaped_types import restored
from etude.dialects.openmm.registries.scope import init_default_scope
from etude.hooks.evaluate import Evaluate
from etude.registry import COLLATES, DATASETS, HOOKS, METRICS, MODELS, OPTIMIZERS, SAMPLERS, UPDATES

#: A converted config lists this module before the user's own, which import the old names.
imports.install()


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


class Later(torch.optim.Optimizer):
    """Stands for optimizers that a constructor of MMEngine's makes when it sees the model."""

    def __init__(self, params: Any, config: Mapping[str, Any], scale: Sequence[int] | None = None) -> None:
        super().__init__(params, {"lr": 0.0})
        self.config, self.scale = restored(config), scale

    def made(self, model: torch.nn.Module) -> Any:
        """The optim wrapper; ``scale`` is the real size of batches and the one that learning rates are meant for."""
        wrapper = optim_wrapper_of(model, self.config)
        if self.scale is not None:
            multiply_lr(wrapper, *self.scale)
        return wrapper

    def step(self, closure: Any = None) -> NoReturn:
        raise AssertionError("the hook mmengine.Data has not put the optimizers in place")


@OPTIMIZERS.register(name="mmengine.OptimWrapper")
def optim_wrapper(params: Any, config: Mapping[str, Any], scale: Sequence[int] | None = None) -> Any:
    """What ``optim_wrapper`` says, with its constructor and its rules for parameters; one optimizer or several."""
    return Later(params, config, scale)


@UPDATES.register(name="mmengine.TrainStep")
class TrainStep:
    """``model.train_step(batch, optim_wrapper)`` around the native optimizer."""

    #: The run as hooks of MMEngine see it, if there are any.
    view: Any = None

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

    def put_in_place(self, run: Run) -> None:
        """Have the optimizers made that only a constructor can make."""
        later = next(iter(run.optimizers.values()))
        if isinstance(later, Later):
            self.wrapper = later.made(run.model)
            run.optimizers = {name: wrapper.optimizer for name, wrapper in exact.named(self.wrapper)}

    def __call__(self, run: Run, batch: Any) -> Any:
        if not self._begun:
            self.wrapper.initialize_count_status(self.model, run.step, run.total_steps or -1)
            for name, wrapper in exact.named(self.wrapper) if self._loaded is not None else ():
                exact.put_back(wrapper, _of(self._loaded, name))
            self._begun = True
        if self.view is not None:
            self.view.tell_rates()
        run.outputs = self.model.train_step(batch, self.wrapper)
        for name, value in run.outputs.items():
            run.events.put(name, value)
        if self.view is not None:
            self.view.tell(run.outputs)
        return run.outputs

    def state_dict(self) -> dict[str, Any]:
        """Batches of an unfinished group, and the scale of the loss; the optimizer is a part of its own."""
        states = {name: _state_of(wrapper) for name, wrapper in exact.named(self.wrapper)}
        return states.get("", {"wrappers": states})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Taken when the first batch comes: the wrapper begins to count anew there."""
        self._loaded = state
        for name, wrapper in exact.named(self.wrapper):
            if scaler := _of(state, name).get("loss_scaler"):
                wrapper.loss_scaler.load_state_dict(dict(scaler))


def _state_of(wrapper: Any) -> dict[str, Any]:
    scaler = getattr(wrapper, "loss_scaler", None)
    return {**exact.unfinished(wrapper), "loss_scaler": scaler.state_dict() if scaler else {}}


def _of(state: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """The state of one wrapper; a single one has no name."""
    found: Mapping[str, Any] = (state or {}).get("wrappers", {}).get(name, {}) if name else state or {}
    return found


@HOOKS.register(name="mmengine.ParamSchedulers")
class ParamSchedulers(EngineHook):
    """MMEngine's parameter schedulers: those by iteration move after every step, those by epoch after every epoch.

    A run by iterations is one epoch of theirs, so that the latter do not move there. ``schedulers`` is a list, or lists
    by the names of several optimizers.
    """

    priority = 65

    def __init__(self, schedulers: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
        self._configs = restored(schedulers)
        self.schedulers: Any = []

    def attach(self, run: Run) -> None:
        """Schedulers act on the optimizer when they are made, before a checkpoint is loaded."""
        wrapper: Any = getattr(run.update, "wrapper", next(iter(run.optimizers.values())))
        several = exact.named(wrapper)
        made = {name: self._made(run, one, self._configs_of(name)) for name, one in several}
        self.schedulers = made.get("", made)

    def _configs_of(self, name: str) -> Any:
        by_name = isinstance(self._configs, dict) and "type" not in self._configs
        return self._configs[name] if by_name else self._configs

    def _made(self, run: Run, wrapper: Any, configs: Any) -> list[Any]:
        return schedulers_of(
            configs,
            wrapper,
            max_epochs=run.max_epochs if run.max_epochs is not None else 1,
            max_iters=run.total_steps,
            epoch_length=_length(run),
        )

    def _all(self) -> list[Any]:
        found: Any = self.schedulers
        return [one for group in found.values() for one in group] if isinstance(found, dict) else found

    def before_run(self, run: Run) -> None:
        if not self.schedulers:
            self.attach(run)

    def after_step(self, run: Run) -> None:
        for scheduler in self._all():
            if not scheduler.by_epoch:
                scheduler.step()

    def after_epoch(self, run: Run) -> None:
        for scheduler in self._all() if run.max_epochs is not None else ():
            if scheduler.by_epoch:
                scheduler.step()

    def after_eval(self, run: Run) -> None:
        for scheduler in self._all():
            if scheduler.by_epoch and getattr(scheduler, "need_val_args", False):
                scheduler.step(run.metrics)

    def state_dict(self) -> dict[str, Any]:
        return {str(index): scheduler.state_dict() for index, scheduler in enumerate(self._all())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for index, scheduler in enumerate(self._all()):
            scheduler.load_state_dict(dict(state[str(index)]))


def _length(run: Run) -> int:
    """Batches of a pass over the data, as MMEngine's loader counts them."""
    loader: Any = run.data["train"]
    try:
        return len(loader)
    except TypeError:
        return run.steps_per_epoch or 1


@METRICS.register(name="mmengine.Evaluator")
class Results:
    """The metrics of MMEngine's evaluator; the hook ``mmengine.Validation`` gives them what they want to see.

    ``name`` is a result that somebody asks for, such as a loss that the model hands out itself.
    """

    def __init__(self, config: Any, name: str = "evaluator") -> None:
        self.evaluator, self.name = Evaluator(restored(config)), name

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
        return {name: float(value) for name, value in found.items() if isinstance(value, int | float | torch.Tensor)}


@HOOKS.register(name="mmengine.Validation")
class Validation(EngineHook):
    """Has evaluations be done as MMEngine's ``ValLoop`` does them.

    With an ``interval``, and only then, it also decides when, by the rules of the train loops: not before ``begin``,
    and with other intervals from the points of ``dynamic_intervals`` on.
    """

    priority = 0

    def __init__(
        self,
        fp16: bool = False,
        interval: int | None = None,
        begin: int = 1,
        dynamic_intervals: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.fp16, self.begin = fp16, begin
        pairs = None if dynamic_intervals is None else [(start, every) for start, every in dynamic_intervals]
        self._intervals = None if interval is None else calc_dynamic_intervals(interval, pairs)

    def attach(self, run: Run) -> None:
        results = next(metric for metric in run.evaluation.metrics.values() if isinstance(metric, Results))
        loader: Any = run.data["val"]
        run.evaluation = ModelEvaluation(run.model, results.evaluator, loader.dataset, fp16=self.fp16)

    def before_run(self, run: Run) -> None:
        """Evaluations are asked for after every epoch or step: let those happen that are due."""
        for hook in run.hooks if self._intervals is not None else ():
            if isinstance(hook, Evaluate):
                hook.at_end = False
                hook.act = partial(self._act, hook.act)  # type: ignore[method-assign]
        run.hooks.compile()

    def _act(self, evaluate: Callable[[Run], None], run: Run) -> None:
        assert self._intervals is not None
        milestones, intervals = self._intervals
        count, last = (run.done, run.total_steps) if run.max_epochs is None else (run.epochs_done, run.max_epochs)
        interval = intervals[bisect.bisect(milestones, count + 1) - 1]
        if count >= self.begin and (count % interval == 0 or count == last):
            evaluate(run)


@HOOKS.register(name="mmengine.EMA")
class Ema(EngineHook):
    """MMEngine's ``EMAHook`` with its arguments: an average that evaluations use in place of the weights."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.hook = EMAHook(**restored(config or {}))

    def attach(self, run: Run) -> None:
        self._runner = View(run)
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
