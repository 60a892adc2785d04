"""What converted configs name: parts of MMEngine at work in the native engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.dialects.mmengine.live import registry
from etude.dialects.mmengine.live.data.sampler import InfiniteSampler
from etude.dialects.mmengine.live.runner.building import schedulers_of
from etude.dialects.openmm.raw import restored
from etude.dialects.openmm.scope import init_default_scope
from etude.registry import COLLATES, DATASETS, HOOKS, MODELS, SAMPLERS, UPDATES


@MODELS.register(name="mmengine.Model")
def model(config: Mapping[str, Any], scope: str = "mmengine", draws: int = 0) -> Any:
    """The model of the registries, its weights initialised as the runner does before training.

    An iteration loop opens its loader first, and that draws a number from the global generator: ``draws`` of them.
    """
    init_default_scope(scope)
    made = registry.MODELS.build(restored(config))
    for _ in range(draws):
        torch.empty((), dtype=torch.int64).random_()
    if hasattr(made, "init_weights"):
        made.init_weights()
    return made


@DATASETS.register(name="mmengine.Dataset")
def dataset(config: Mapping[str, Any]) -> Any:
    made = registry.DATASETS.build(restored(config))
    if hasattr(made, "full_init"):
        made.full_init()
    return made


@SAMPLERS.register(name="mmengine.Sampler")
def sampler(dataset: Any, config: Mapping[str, Any], seed: int) -> Any:
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

    def __call__(self, run: Run, batch: Any) -> Any:
        if not self._begun:
            self.wrapper.initialize_count_status(self.model, run.step, run.total_steps or -1)
            self._begun = True
        run.outputs = self.model.train_step(batch, self.wrapper)
        for name, value in run.outputs.items():
            run.events.put(name, value)
        return run.outputs


@HOOKS.register(name="mmengine.ParamSchedulers")
class ParamSchedulers(EngineHook):
    """MMEngine's parameter schedulers: those by iteration move after every step, those by epoch after every epoch."""

    priority = 70

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

    def state_dict(self) -> dict[str, Any]:
        return {str(index): scheduler.state_dict() for index, scheduler in enumerate(self.schedulers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for index, scheduler in enumerate(self.schedulers):
            scheduler.load_state_dict(dict(state[str(index)]))
