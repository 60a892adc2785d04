"""Data in converted configs: MMEngine's loaders at work in the native engine.

The native loader draws for every sample from a stream of its own, which is better but other numbers than the
original's. These loaders draw from the generators of the process, or in workers by the place of a sample, as the train
loops of this dialect do; so augmentation and dropout give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch

from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.data.seeds import kept_generators
from etude.dialects.mmengine.live.converted import Endless
from etude.dialects.mmengine.live.converted_view import hub_of
from etude.dialects.mmengine.live.dist.utils import get_world_size
from etude.dialects.mmengine.live.hooks.sampler_seed_hook import set_epoch
from etude.dialects.mmengine.live.passes import Passes
from etude.dialects.mmengine.live.runner.dataloaders import _SlicedDataset, build_dataloader
from etude.dialects.openmm.escaped_types import restored
from etude.plan import Loader as LoaderPlan
from etude.registry import COLLATES, HOOKS, SAMPLERS


@HOOKS.register(name="mmengine.Data")
class Data(EngineHook):
    """The loaders of ``data`` replaced by MMEngine's, and the weights initialised after that, as the runner does it.

    ``train`` and ``val`` are the settings that the native section has no word for. Without ``init`` somebody else, who
    has to do something before, initialises the weights; without ``set_epoch`` every epoch has the order of the first.
    """

    def __init__(
        self,
        train: Mapping[str, Any] | None = None,
        val: Mapping[str, Any] | None = None,
        init: bool = True,
        set_epoch: bool = True,
    ) -> None:
        self.options = {"train": restored(train or {}), "val": restored(val or {})}
        self.init, self.set_epoch = init, set_epoch

    def attach(self, run: Run) -> None:
        """Before anything is drawn for training: the run is built, no hook has begun."""
        self._replace_loaders(run)
        put_in_place = getattr(run.update, "put_in_place", None)
        if put_in_place is not None:
            put_in_place(run)
        self._hub = hub_of(run)
        self._hub.update_info_dict({"max_epochs": run.max_epochs or 1, "max_iters": run.total_steps})
        if self.init:
            initialise(run.model)

    def before_train(self, run: Run) -> None:
        self._hub.update_info_dict({"epoch": run.epoch if run.max_epochs else 0, "iter": run.step})

    def before_epoch(self, run: Run) -> None:
        if run.max_epochs is not None:
            self._hub.update_info("epoch", run.epoch)

    def before_step(self, run: Run) -> None:
        """Models ask the hub how far the run is."""
        self._hub.update_info("iter", run.step)

    def _replace_loaders(self, run: Run) -> None:
        assert run.plan is not None
        seed, endless = run.plan.train.seed, run.max_epochs is None
        for split, plan in run.plan.data.items():
            native: Any = run.data[split]
            loader = _loader(native.dataset, plan, self.options[split], seed)
            if split == "train":
                run.data[split] = Batches(run, loader, seed=seed, endless=endless, set_epoch=self.set_epoch)
                self._count(run, loader)
            else:
                run.data[split] = Limited(loader, getattr(native, "limit", None))
        if endless:
            torch.empty((), dtype=torch.int64).random_()  # an iteration loop opens its loader at once

    def _count(self, run: Run, loader: Any) -> None:
        """Batches of an epoch where the native section does not say how many there are."""
        assert run.plan is not None
        training = run.plan.train
        if not {"batch_sampler", "num_batch_per_epoch"} & set(self.options["train"]):
            return
        length = min(len(loader), training.limit_batches or len(loader))
        run.steps_per_epoch = run.hooks.steps_per_epoch = length
        if training.epochs is not None:
            run.total_steps = training.epochs * length


def initialise(model: Any) -> None:
    """The weights of a model that knows how."""
    if hasattr(model, "init_weights"):
        model.init_weights()


def _loader(dataset: Any, plan: LoaderPlan, given: Mapping[str, Any], seed: int) -> Any:
    options = dict(given)
    batches = options.pop("num_batch_per_epoch", None)
    if batches is not None:
        dataset = _SlicedDataset(dataset, batches * plan.batch_size * get_world_size())
    sampler: Any = SAMPLERS.build(plan.sampler, dataset) if plan.sampler is not None else None
    known: dict[str, Any] = {
        **options,
        "dataset": dataset,
        "sampler": sampler.sampler if isinstance(sampler, Endless) else sampler,
        "batch_size": plan.batch_size,
        "num_workers": plan.workers,
        "drop_last": plan.drop_last,
    }
    if plan.collate is not None:
        known["collate_fn"] = COLLATES.build(plan.collate)
    return build_dataloader(known, seed=seed)


class Limited:
    """A loader of which at most ``limit`` batches are seen."""

    def __init__(self, loader: Any, limit: int | None) -> None:
        self.loader, self.limit = loader, limit

    def __iter__(self) -> Iterator[Any]:
        return islice(self.loader, self.limit)

    def __len__(self) -> int:
        return len(self.loader) if self.limit is None else min(self.limit, len(self.loader))

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)


class Batches:
    """The passes of a train loop over ``loader``, each with a position to resume from.

    ``endless`` is the way of iteration loops, whose first pass was opened before training began.
    """

    def __init__(self, run: Run, loader: Any, *, seed: int, endless: bool, set_epoch: bool = True) -> None:
        self.loader, self.endless, self._tells = loader, endless, set_epoch or endless
        runner = SimpleNamespace(seed=seed, rank=run.world.rank)
        self.passes = Passes(SimpleNamespace(core=run, dataloader=loader, runner=runner))
        self._epoch = self._batch = self._skip = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        skip, self._skip = self._skip, 0
        self._batch = skip
        opened = skip or (self.endless and self._epoch == 0)
        with kept_generators() if opened else nullcontext():
            batches = self.passes.begin(self._epoch, skip)
        for batch in batches:
            self._batch += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this one; a position inside another one is forgotten."""
        if epoch != self._epoch:
            self._epoch, self._skip = epoch, 0
        if self._tells:
            set_epoch(self.loader, epoch)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "batch": self._batch, "pass": self.passes.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._skip = int(state["epoch"]), int(state["batch"])
        self._batch = self._skip
        if state["pass"] is not None:
            self.passes.load_state_dict(state["pass"])

    def rewind(self) -> None:
        """Begin the next pass at its start."""
        self._skip = 0
