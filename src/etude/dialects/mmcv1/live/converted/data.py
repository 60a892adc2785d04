"""Data and evaluation in converted configs: the projects' loaders and tests at work in the native engine.

The native loader draws for every sample from a stream of its own, which is better but other numbers than the
original's. These loaders draw from the generators of the process, in the order in which mmcv's runners do, so that
shuffling, augmentation, dropout and workers give the same bits.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import torch

from etude.checkpoint.warm import init_from
from etude.core.hook import Hook as EngineHook
from etude.core.loop import Workflow
from etude.core.run import Run
from etude.data.move import move
from etude.data.resume import Replay
from etude.dialects.mmcv1.live.converted.adapters import Late, Updating, call_hooks, dataset
from etude.dialects.mmcv1.live.converted.runner_view import is_number, view_of
from etude.dialects.mmcv1.live.converted.workflow import Turns
from etude.dialects.mmcv1.live.mmcls.data import build_dataloader
from etude.dialects.mmcv1.live.mmtrack.data import build_dataloader as build_frame_loader
from etude.dialects.mmcv1.live.parallel import scatter
from etude.dialects.mmcv1.live.runner.log_buffer import LogBuffer
from etude.dialects.openmm.escaped_types import restored
from etude.errors import ConfigError, EtudeError, suggest
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.evaluate import Evaluate
from etude.registry import HOOKS, METRICS
from etude.units import parse


@HOOKS.register(name="mmcv1.Data")
class Data(EngineHook):
    """The loaders of ``data`` replaced by those of the project.

    ``train``, ``val`` and ``test`` are their settings, ``validate`` the data of the workflow's validation epochs, or of
    validation between iterations: ``turns`` are how many of training and of validation follow each other.
    """

    def __init__(
        self,
        train: Mapping[str, Any],
        val: Mapping[str, Any] | None = None,
        validate: Mapping[str, Any] | None = None,
        test: Mapping[str, Any] | None = None,
        project: str = "mmcls",
        turns: Sequence[int] | None = None,
    ) -> None:
        self.turns = turns
        self.train, self.val, self.test = restored(train), restored(val), restored(test)
        self.validate, self.project = validate, project

    def attach(self, run: Run) -> None:
        """Before anything is drawn: the run is built, no hook has begun."""
        _load_early(run)
        native: Mapping[str, Any] = dict(run.data)
        results = next((m for m in run.evaluation.metrics.values() if isinstance(m, Results)), Results())
        if self.project == "mmtrack":
            _label(run, native["train"].dataset)
        epochs = None
        run.data["train"] = Replay(self._batches(run, native["train"].dataset, self.train))
        _measure_again(run, native["train"])
        if self.validate is not None and self.turns is not None:
            self._take_turns(run, *self.turns)
        elif self.validate is not None:
            epochs = self._batches(run, dataset(self.validate, project=self.project), self.train)
            run.data.setdefault("val", epochs)
        for split, settings in (("val", self.val), ("test", self.test)):
            if settings is not None and split in native:
                limit = getattr(native[split], "limit", None)
                run.data[split] = self._batches(run, native[split].dataset, settings, limit, results)
        run.evaluation = Evaluation(run, results, epochs)
        if isinstance(run.loop, Workflow):
            run.loop = Rounds(run.loop.flow)
        hook = getattr(run.update, "hook", None)
        if hook is not None:
            updating = Updating(hook, epochs=not view_of(run).by_steps)
            updating.attach(run)
            run.hooks.add(updating)

    def _take_turns(self, run: Run, trained: int, validated: int) -> None:
        data = self._batches(run, dataset(self.validate, project=self.project), self.train).loader
        turns, train = Turns(data, trained, validated), run.data["train"]
        run.hooks.add(turns)
        view_of(run).turn = trained
        train.loader.opened = turns.open  # type: ignore[attr-defined]

    def _batches(
        self, run: Run, data: Any, settings: Any, limit: int | None = None, results: Results | None = None
    ) -> Batches:
        build: Callable[..., Any] = build_frame_loader if self.project == "mmtrack" else build_dataloader
        device = next(iter(run.model.parameters())).device

        def make() -> Any:
            return build(data.made() if isinstance(data, Late) else data, **settings)

        return Batches(make, device, limit, results, at_once=not isinstance(data, Late), run=run)

    def before_run(self, run: Run) -> None:
        """Evaluate when the interval says so, and not once more at the end."""
        for hook in run.hooks:
            if isinstance(hook, Evaluate):
                hook.at_end = False
        run.hooks.compile()


def _load_early(run: Run) -> None:
    """mmcv loads weights before its hooks begin, who look at them: an average starts with those.

    A run that goes on needs no such file any more; if one needs it, the engine reports that when it loads it once more.
    """
    given = dict(run.plan.init_from) if run.plan is not None else {}
    with suppress(EtudeError, OSError):
        if given:
            init_from(run.model, **given)


def _label(run: Run, data: Any) -> None:
    """What MMTracking's script tells the model of its data; hooks see the model in a wrapper there."""
    view_of(run).wraps = True
    with suppress(AttributeError):
        run.model.CLASSES = data.CLASSES


def _measure_again(run: Run, native: Any) -> None:
    """A user-defined sampler may give more or fewer samples than the data have."""
    own: Any = run.data["train"]
    if run.steps_per_epoch is None or len(own) == len(native) or run.plan is None:
        return
    training = run.plan.train
    run.steps_per_epoch = min(len(own), training.overfit or training.limit_batches or len(own))
    run.hooks.steps_per_epoch = run.steps_per_epoch
    if run.max_epochs is not None:
        run.total_steps = run.max_epochs * run.steps_per_epoch


class Rounds(Workflow):
    """A workflow as mmcv has it: a round that has begun is finished, so validation follows the last training, too."""

    def __call__(self, run: Run) -> None:
        super().__call__(run)
        turns = [mode for mode, count in self.flow for _ in range(count)]
        while self.position and not run.stopping:
            if turns[self.position] != "train":
                run.evaluation.losses(run, run.data[turns[self.position]])
            self.position = (self.position + 1) % len(turns)


@METRICS.register(name="mmcv1.Results")
class Results:
    """What the data's own ``evaluate(results, **arguments)`` gives; ``name`` is the result that decides what is best.

    ``auto`` stands for the first result, whatever its name. A tracker's results come by kind, each in a list.
    """

    def __init__(self, arguments: Mapping[str, Any] | None = None, name: str = "") -> None:
        self.arguments, self.name = restored(arguments) or {}, name
        self.dataset: Any = None
        self.reset()

    def reset(self) -> None:
        self._listed: list[Any] = []
        self._by_kind: defaultdict[str, list[Any]] = defaultdict(list)

    def update(self, output: Any, target: Any = None) -> None:
        if not isinstance(output, Mapping):
            self._listed.extend(output)
            return
        for kind, value in output.items():
            self._by_kind[kind].append(value)

    def compute(self) -> dict[str, float]:
        seen = dict(self._by_kind) or self._listed
        results = self.dataset.evaluate(seen, logger=logging.getLogger("mmcv"), **self.arguments)
        found = {str(name): float(value) for name, value in results.items() if is_number(value)}
        if self.name == "auto" and found:
            found["auto"] = next(iter(found.values()))
        if self.name and found and self.name not in found:
            raise ConfigError(f"checkpoint.best: the evaluation gave no {self.name!r}", hint=suggest(self.name, found))
        return found


class Batches:
    """Batches of one of torch's loaders, unpacked and on the model's device; at most ``limit`` of them.

    The loader is made by ``make``, ``at_once`` or when it is used; ``results`` learn whose data they belong to.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        device: torch.device,
        limit: int | None = None,
        results: Results | None = None,
        *,
        at_once: bool = True,
        run: Run,
    ) -> None:
        self.make, self.device, self.limit, self.results, self.run = make, device, limit, results, run
        self._loader: Any = make() if at_once else None
        self._epoch = 0
        #: Called when the first pass has been opened, before its first batch is drawn.
        self.opened: Callable[[], None] = lambda: None

    @property
    def loader(self) -> Any:
        if self._loader is None:
            self._loader = self.make()
        return self._loader

    def __iter__(self) -> Iterator[Any]:
        if self.results is not None:
            self.results.dataset = self.loader.dataset
        batches = iter(self.loader)
        if self._epoch == 0:
            self.opened()
        for batch in islice(batches, self.limit):
            yield move(scatter(batch, [-1])[0], self.device)

    def __len__(self) -> int:
        return len(self.loader) if self.limit is None else min(self.limit, len(self.loader))

    def set_epoch(self, epoch: int) -> None:
        """An iteration runner tells its sampler of every pass but the first; one by epochs, with one process, never."""
        self._epoch = epoch
        tell = getattr(getattr(self.loader, "sampler", None), "set_epoch", None)
        if tell is not None and epoch and view_of(self.run).by_steps:
            tell(epoch)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader" or self._loader is None:  # asked for before there is one, also while being copied
            raise AttributeError(name)
        return getattr(self._loader, name)


class Evaluation:
    """``model(return_loss=False)`` over the data and their own ``evaluate``; validation epochs by ``val_step``."""

    def __init__(self, run: Run, results: Results, epochs: Batches | None) -> None:
        self.model, self.results, self.epochs = run.model, results, epochs
        self.metrics = {results.name: results} if results.name else {}

    def begin(self) -> None:
        self.results.reset()

    @torch.no_grad()
    def step(self, run: Run, batch: Any) -> dict[str, Any]:
        self.results.update(self.model(return_loss=False, **batch))
        return {}

    def end(self) -> dict[str, float]:
        return self.results.compute()

    @torch.no_grad()
    def losses(self, run: Run, loader: Any) -> dict[str, float]:
        """A validation epoch of the workflow."""
        seen, training, view = LogBuffer(), run.model.training, view_of(run)
        run.model.eval()
        view.mode = "val"
        call_hooks("before_val_epoch", run)
        for batch in self.epochs if self.epochs is not None else loader:
            call_hooks("before_val_iter", run)
            outputs: Any = run.model.val_step(batch, view.optimizer)  # type: ignore[operator]
            seen.update(outputs.get("log_vars", {}), outputs.get("num_samples", 1))
            call_hooks("after_val_iter", run)
        call_hooks("after_val_epoch", run)
        view.mode = "train"
        run.model.train(training)
        seen.average()
        values = {name: float(value) for name, value in seen.output.items()}
        run.events.write(values, step=run.done, epoch=run.last_epoch, split="val")
        return values


@HOOKS.register(name="mmcv1.Evaluations")
class Evaluations(EngineHook):
    """Which evaluations are due: the one after ``start`` epochs (or steps) and every ``interval`` from there on.

    A ``start`` of 0 may ask for one before training, too.
    """

    def __init__(self, start: int, interval: int = 1) -> None:
        self.start, self.interval = start, interval

    def attach(self, run: Run) -> None:
        """The engine's own hook is there already; one that knows the start takes its place."""
        native = next((hook for hook in run.hooks if isinstance(hook, Evaluate)), None)
        if native is not None:  # a run by heart has none
            run.hooks.remove(native)
            run.hooks.add(Starting(native, self.start, self.interval))


class Starting(Evaluate):
    """An evaluation after every epoch or step, of which only those that are due are done."""

    def __init__(self, native: Evaluate, start: int, interval: int) -> None:
        super().__init__(native.split, native.mode)
        self.every, self.priority, self.essential = native.every, native.priority, native.essential
        self.start, self.interval, self._begun = start, interval, False

    @property
    def name(self) -> str:
        return "Evaluate"

    def _is_due(self, count: int) -> bool:
        return count >= self.start and (count - self.start) % self.interval == 0

    def act(self, run: Run) -> None:
        if self._is_due(run.epochs_done if run.stage == "after_epoch" else run.done):
            super().act(run)

    def calls(self) -> Mapping[str, Callable[[Run], Any]]:
        by_epochs = parse(self.every or "1ep").unit == "epoch"
        first = {"before_epoch": self._before_epoch} if by_epochs else {"before_step": self._before_step}
        return {**super().calls(), **first}

    def _before_epoch(self, run: Run) -> None:
        self._begin(run, run.epoch)

    def _before_step(self, run: Run) -> None:
        self._begin(run, run.step)

    def _begin(self, run: Run, position: int) -> None:
        """Once, before anything is trained."""
        if self._begun:
            return
        self._begun = True
        if run.step or position < self.start or not self._is_due(position + 1):
            return
        super().act(run)
        for hook in run.hooks:
            if isinstance(hook, Checkpoint) and hook.has_new_best(run) and run.store is not None:
                run.store.save(run, metrics=hook.fresh_metrics(run))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "begun": self._begun}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._begun = bool(state["begun"])
