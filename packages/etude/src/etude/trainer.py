"""Trains from Python without a config: objects in, a finished run out.

>>> import torch, etude
>>> from etude.data import Digits
>>> from etude.metrics import Accuracy
>>> _ = torch.manual_seed(0)
>>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
>>> trainer = etude.Trainer(
...     model,
...     loss=torch.nn.CrossEntropyLoss(),
...     optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3),
...     metrics=[Accuracy()],
...     quiet=True,
... )
>>> run = trainer.fit(Digits("train"), val=Digits("val"), batch_size=64, epochs=3)
>>> run.step, run.metrics["accuracy"] > 0.9
(69, True)
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import torch
from torch.optim.lr_scheduler import LRScheduler

from etude import dialects
from etude.build import (
    Options,
    clippings,
    compare_ranks,
    forward_of,
    join_ranks,
    length_of_epoch,
    length_of_run,
    make,
    make_hook,
    parallel_of,
    peers_of,
    pick_device,
    seed_everything,
    set_computing,
    settings_of_step,
    step_of,
    wrap_for,
)
from etude.build import overfit as make_overfit
from etude.config.tree import Tree
from etude.core import loop as loops
from etude.core.evaluation import Evaluation, by_name, require_metric
from etude.core.hook import FunctionHook, Hook, HookTable, require_call, require_points
from etude.core.predict import predict
from etude.core.run import Run
from etude.core.update import Step
from etude.data.loader import Loader, is_stream
from etude.data.order import Limited, Sliced
from etude.data.resume import Replay
from etude.data.seeds import seed_rank
from etude.dialects.native.lower import PRIORITY, lower_hook
from etude.dist.layout.wrap import mesh_of, whole_losses
from etude.dist.world import World
from etude.errors import ConfigError, UserError
from etude.errors.own_code import lines_of_user
from etude.errors.spelling import nearest, suggest
from etude.fast_dataclass import replace
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.ema import Ema
from etude.hooks.evaluate import Evaluate
from etude.hooks.log import Log
from etude.hooks.schedule import Schedule, TorchSchedule
from etude.hooks.timer import Timer
from etude.inspection.check import without_step
from etude.inspection.check.reality import check_facts
from etude.losses.outputs import fitted
from etude.plan import Parallel, Plan, Spec, Training
from etude.preview.notebook import in_notebook, table
from etude.schedules.phases import schedules_from
from etude.session.lengths import facts_of
from etude.session.session import Session, end_script
from etude.session.unsaved import warn_of_unsaved_state
from etude.session.words import (
    checked,
    describe,
    describe_data,
    describe_hook,
    describe_metric,
    describe_model,
    describe_optimizer,
    describe_schedule,
    name_of,
    refuse,
)
from etude.units import Amount

Data = Iterable[Any] | Any
F = TypeVar("F", bound=Callable[[Run], Any])
P = ParamSpec("P")
R = TypeVar("R")
#: Hooks that sections of a config stand for, by their names there.
_SECTIONS: dict[str, type[Hook]] = {"Timer": Timer, "Log": Log, "Evaluate": Evaluate, "Checkpoint": Checkpoint}


def _suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """Answer a keyword that ``function`` does not have with the one that was probably meant."""
    own = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in own:
                raise TypeError(f"{function.__qualname__} has no parameter {name!r}; {_meant(name, own)}")
        return function(*args, **kwargs)

    return call


#: Keywords of other trainers whose values go elsewhere, or are written otherwise.
_ELSEWHERE = {
    "logger": "write trainer.fit(…, log=['wandb']), or another writer or tracker",
    "loggers": "write trainer.fit(…, log=['wandb']), or other writers and trackers",
    "report_to": "write trainer.fit(…, log=['wandb']), or another writer or tracker",
    "detect_anomaly": "write Trainer(hooks=['DetectAnomaly'])",
    "profiler": "write Trainer(hooks=['Profiler'])",
    "scheduler": "write Trainer(schedule=…, schedule_by='step')",
    "lr_scheduler": "write Trainer(schedule=…, schedule_by='step')",
}


def _meant(name: str, own: Collection[str]) -> str:
    """Return the hint for an unknown keyword: one of ``own``, else one of ``fit`` or ``Trainer``."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if nearest(name, list(own)) is None:
        for place, function in (("trainer.fit", Trainer.fit), ("Trainer", Trainer.__init__)):
            near = nearest(name, list(inspect.signature(function).parameters))
            if near is not None:
                return f"did you mean {place}({near}=…)?"
    return suggest(name, [one for one in own if one != "self"], most=30)


class Trainer:
    """Trains a model. The arguments say how; those of :meth:`fit` say on which data and for how long.

    ``optimizer`` is one optimizer, or several by name. ``schedule`` is a curve, a list of phases, a mapping such as
    ``{"lr": …, "momentum": …}``, or a scheduler of torch; ``schedule_by`` says when torch's is stepped: ``"epoch"``,
    ``"step"``, or the metric that a ``ReduceLROnPlateau`` watches. ``update`` replaces what happens with a batch: a
    function ``(run, batch)`` or ``(run, batch, step)``, where ``step`` does precision, accumulation and clipping.
    ``loop`` replaces the order of epochs and steps. ``hooks`` are :class:`~etude.Hook` objects, or functions of the run
    that are called after every step; :meth:`on` adds functions at other points. ``parts`` are further objects with a
    ``state_dict`` that belong into checkpoints. ``folder`` keeps metrics, log and checkpoints; without it nothing is
    written. ``seed`` seeds Python, NumPy and torch when :meth:`fit` begins; the order of the data follows from it too.

    ``clip_norm=1.0`` and ``clip_value=0.5`` are short for the usual clippings; ``clip`` takes others, as objects
    (:mod:`etude.optim.clipping`) or as in a config: ``{"type": "AGC", "factor": 0.01}``.

    Hooks may also be given as in a config: ``"EMA"``, or ``{"type": "EMA", "momentum": 0.05}``. ``init_from`` names
    weights to start from: a path, or a mapping as in a config. All settings are checked as those of a config are, and
    are in the ``plan.yaml`` of the run's folder.

    ``ledger=False`` leaves out ``ledger.bin``, with its 32 bytes for each step.

    Under torchrun all processes train one model together: ``parallel`` says how (``"ddp"``, ``{"strategy": "fsdp",
    "wrap": ["Block"]}``, ``{"tensor": 2}``), and ``batch_size`` is that of all of them.
    """

    @_suggesting
    def __init__(
        self,
        model: torch.nn.Module,
        *,
        optimizer: torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer],
        loss: Callable[..., torch.Tensor] | None = None,
        schedule: Any = None,
        schedule_by: str = "",
        update: Callable[..., Any] | None = None,
        loop: Callable[[Run], None] | None = None,
        metrics: Sequence[Any] = (),
        hooks: Sequence[Hook | Callable[[Run], Any]] = (),
        parts: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        device: str = "auto",
        precision: str = "fp32",
        accumulate: int = 1,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        clip: Any = None,
        nonfinite: str = "stop",
        nonfinite_limit: int = 3,
        seed: int | None = None,
        deterministic: bool | str = False,
        threads: int | None = None,
        init_from: str | Path | Mapping[str, Any] | None = None,
        quiet: bool = False,
        parallel: str | Mapping[str, Any] | Parallel = "auto",
        ledger: bool = True,
    ) -> None:
        for name, given in (("loss", loss), ("update", update), ("loop", loop)):
            _refuse_scheduler(name, given)
        _require_objects(loss, optimizer)
        if loop is not None:
            require_call(loop, "loop", "run")
        #: What was asked for, in the words of a config: what :meth:`fit` adds to.
        self.settings: dict[str, Any] = _settings(
            accumulate=accumulate, precision=precision, nonfinite=nonfinite, nonfinite_limit=nonfinite_limit, seed=seed,
            deterministic=deterministic, threads=threads, device=device,
        )  # fmt: skip
        several = clip if isinstance(clip, list | tuple) else [] if clip is None else [clip]
        told = [one if isinstance(one, str | Mapping) else describe(one) for one in several]
        self._clipping = {"clip_norm": clip_norm, "clip_value": clip_value, "clip": told or None}
        self._init_from = str(init_from) if isinstance(init_from, Path) else init_from
        self._own = {"loss": loss, "update": update, "schedule": schedule, "schedule_by": schedule_by}
        plan = self._require_values(model, optimizer)
        self.world = World.from_environment()
        self.device = pick_device(device, self.world)
        self.parallel = parallel_of(parallel)
        for text, hint in self.parallel.refusals(
            precision=precision, own_update=update is not None, losses=loss is not None
        ):
            raise ConfigError(f"Trainer: {text}", hint=hint.replace("write loss: …", "pass loss=…"))
        self.mesh = mesh_of(self.parallel, self.world)
        join_ranks(self.world, self.device)
        self.model = model.to(self.device)
        self.optimizers = dict(optimizer) if isinstance(optimizer, Mapping) else {"": optimizer}
        _require_parameters(self.model, self.optimizers)
        self._strategy = parallel if isinstance(parallel, Mapping) else {"strategy": self.parallel.strategy}
        if self.parallel.fault_tolerant:
            raise ConfigError("parallel.fault_tolerant works with `etude train` and a config, not with Trainer")
        # Before the step is made: sharding puts other parameters into the optimizers' groups.
        self.wrapped = wrap_for(
            self.model, self.optimizers, self.parallel, self.mesh, self.device, by_hand=update is not None
        )
        losses = whole_losses({"loss": fitted(loss)} if loss is not None else {}, self.mesh)
        # Ranks evaluate different numbers of batches. DDP would wait for the others in each, so `plain` bypasses it.
        self.forward = forward_of(self.wrapped, losses)
        self.plain = forward_of(self.wrapped, losses, self.model)
        self.step = step_of(self.forward)(
            self.forward, self.optimizers, **settings_of_step(plan, self._clippings(plan, several), self.device)
        )
        self.update = self.step if update is None else _own_update(update, self.step)
        self.loop = loop
        self.metrics = by_name(require_metric(metric) for metric in metrics)
        self.hooks = [_as_hook(hook) for hook in [*hooks, *_schedule_hooks(schedule, schedule_by, self.optimizers)]]
        self.parts = dict(parts or {})
        self.folder, self.seed, self.quiet, self.ledger = folder, seed, quiet, ledger

    def on(self, point: str, *, every: str | int | Amount | None = None, priority: int = 50) -> Callable[[F], F]:
        """Call the decorated function with the run at ``point``.

        >>> model = torch.nn.Linear(1, 1)
        >>> trainer = Trainer(model, optimizer=torch.optim.SGD(model.parameters()))
        >>> @trainer.on("after_epoch", every="2ep")
        ... def report(run):
        ...     print(run.metrics)
        >>> [hook.name for hook in trainer.hooks]
        ['report']
        """

        def add(function: F) -> F:
            self.hooks.append(FunctionHook(function, point, every=every, priority=priority))
            return function

        return add

    @_suggesting
    def fit(
        self,
        train: Data,
        *,
        val: Data | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        workers: int = 0,
        validate: str | None = None,
        log: str | Sequence[Any] | Mapping[str, Any] = "50step",
        checkpoint: str | Hook | Mapping[str, Any] | None = None,
        best: str = "",
        resume: bool = False,
        max_time: str | None = None,
        limit_batches: int | None = None,
        overfit: int | None = None,
        fast_dev_run: bool = False,
    ) -> Run:
        """Train on a dataset, in batches of ``batch_size`` (32), or on anything that gives batches.

        ``checkpoint="1ep"`` saves into the trainer's folder, and ``best="accuracy"`` keeps the best one too; a mapping
        takes all that ``checkpoint`` of a config does: ``{"every": "1ep", "best": "accuracy", "keep": 5}``. ``resume``
        continues from the newest checkpoint in the folder, or begins if there is none. Ctrl-C finishes the step, saves,
        and raises ``KeyboardInterrupt``; SIGTERM raises ``SystemExit(143)``.

        ``log`` is an interval, a list of writers and trackers (``["wandb", {"type": "tensorboard"}]``, or objects of
        your own), or both: ``{"every": "20step", "to": ["wandb"]}``. ``max_time="2h"`` stops and saves after that time.
        ``limit_batches=5`` takes 5 batches of each epoch and evaluation, ``overfit=1`` trains on the same one over and
        over, and ``fast_dev_run`` runs two batches of everything and writes nothing.
        """
        began = monotonic()
        if (epochs is None) == (steps is None):
            raise UserError("say either epochs or steps: trainer.fit(data, epochs=10)")
        self._require_folder(checkpoint, resume, log)
        if best and not isinstance(checkpoint, str):
            raise UserError(
                f"best={best!r} goes with checkpoint='1ep'; a Checkpoint hook or mapping has its own `best`"
            )
        for data in (train, val):
            if data is not None:
                _require_data(data)
        size = _size_of(train, batch_size, 32, workers)
        val_size = None if val is None or (size is not None and _gives_batches(val)) else _size_of(val, batch_size, 32)
        length = _settings(epochs=epochs, steps=steps, validate=validate, max_time=max_time)
        length |= _settings(limit_batches=limit_batches, overfit=overfit)
        saving: dict[str, Any] = {"every": checkpoint, "best": best} if isinstance(checkpoint, str) else {}
        if isinstance(checkpoint, Mapping):
            saving = {"every": "1ep", **checkpoint}
        logging, writers = _log_of(log)
        words: dict[str, Any] = {
            "train": {**self.settings, **length},
            "data": {"train": describe_data(train, size, workers)},
            "checkpoint": {key: value for key, value in saving.items() if value != ""} or False,
            "log": logging,
        }
        if val is not None:
            words["data"]["val"] = describe_data(val, val_size, workers, trains=False)
        if isinstance(checkpoint, Hook):
            words["hooks"] = [describe_hook(checkpoint)]
        plan, tree = self._plan(words)
        self._begin(plan)
        run = self._run(train, val, plan.train, sizes=(size, val_size), workers=workers)
        unwanted = ("Checkpoint", "Evaluate") if overfit is not None else ("Checkpoint",) if fast_dev_run else ()
        for hook in _of_sections(plan, () if saving else ("Checkpoint",)):
            if hook.name not in unwanted:
                run.hooks.add(hook)
        if isinstance(checkpoint, Hook) and not unwanted:
            run.hooks.add(checkpoint)
        for hook in run.hooks:
            if hasattr(hook, "attach"):
                hook.attach(run)
        if fast_dev_run:
            dialects.of(None).shorten_run(run)
        if overfit is not None:
            make_overfit(run, plan.train)
        refuse(check_facts(plan, facts_of(run), folder=str(self.folder or ".")))
        if checkpoint is not None:
            warn_of_unsaved_state(run)
        options = Options(folder=self.folder, resume="" if resume else None, quiet=self.quiet)
        lasting = self.folder is not None and not fast_dev_run
        try:
            with Session(run, options, lasting=lasting, began=began, plan=plan, tree=tree, writers=writers):
                loops.train(run)
        except Exception as error:
            if hasattr(error, "etude_where"):
                error.add_note(f"in {error.etude_where}")
            if in_notebook():
                raise error.with_traceback(lines_of_user(error.__traceback__)) from error.__cause__
            raise
        end_script(run)
        return run

    def __repr__(self) -> str:
        return f"<Trainer: {', '.join(f'{key} {value}' for key, value in self._facts().items())}>"

    def _repr_html_(self) -> str:
        return table(self._facts(), title="trainer")

    def _facts(self) -> dict[str, Any]:
        """Return what the trainer is made of, for people."""
        count = sum(param.numel() for param in self.model.parameters())
        loss, update = self._own["loss"], self._own["update"]
        facts: dict[str, Any] = {"model": f"{type(self.model).__name__} ({count:,} parameters)"}
        facts |= {"loss": name_of(loss)} if loss is not None else {}
        facts |= {"update": name_of(update)} if update is not None else {}
        facts["optimizer"] = ", ".join(type(one).__name__ for one in self.optimizers.values())
        facts |= {"metrics": ", ".join(self.metrics)} if self.metrics else {}
        facts |= {"hooks": ", ".join(hook.name for hook in self.hooks)} if self.hooks else {}
        facts |= {key: value for key, value in self.settings.items() if not isinstance(value, Mapping)}
        return facts | ({"folder": self.folder} if self.folder is not None else {})

    def evaluate(
        self, data: Data, *, batch_size: int | None = None, metrics: Sequence[Any] | None = None
    ) -> dict[str, float]:
        """Return losses and metrics (the trainer's, or ``metrics``) on a dataset or on batches. Nothing is trained."""
        _require_data(data)
        loader = self._loader(data, _size_of(data, batch_size, 256), shuffle=False)
        run = self._run(loader, None, Training(epochs=0))
        if metrics is not None:
            chosen = by_name(require_metric(metric) for metric in metrics)
            run.evaluation = Evaluation(self.plain, chosen, autocast=self.step.autocast)
        return loops.evaluate(run, loader, run.evaluation)

    def predict(self, data: Data, *, batch_size: int | None = None) -> Any:
        """Return the model's outputs for all samples, in order, on the CPU: a tensor, or a mapping of tensors.

        Samples may come with or without their targets.
        """
        _require_data(data)
        loader = self._loader(data, _size_of(data, batch_size, 256), shuffle=False)
        run = self._run(loader, None, Training(epochs=0))
        averages = [hook for hook in self.hooks if isinstance(hook, Ema)]
        for average in averages:  # the weights that `evaluate` measures
            average.before_eval(run)
        try:
            return predict(self.plain, loader, device=self.device, autocast=self.step.autocast)
        finally:
            for average in averages:
                average.after_eval(run)

    # -- in the words of a config --------------------------------------------------------------------------------

    def _clippings(self, plan: Plan, given: Sequence[Any]) -> list[Any]:
        """Return the clippings: objects of the script as they are, and what it says in words of a config."""
        specs = next(iter(plan.optimizers.values())).clip  # all have the same
        short = [make(spec) for spec in specs[: len(specs) - len(given)]]
        pairs = zip(given, specs[len(short) :], strict=True)
        own = [make(spec) if isinstance(one, str | Mapping) else one for one, spec in pairs]
        return clippings(plan, self.mesh, [*short, *own])

    def _require_values(self, model: Any, optimizer: Any) -> Plan:
        """Check the values of the arguments, before anything is made of them."""
        optimizers = optimizer if isinstance(optimizer, Mapping) else {"": optimizer}
        self.optimizers = dict(optimizers)
        words = {
            "model": describe(model), "optim": self._optim(), "train": {"epochs": 1, **self.settings},
            "data": {"train": {"dataset": "data"}}, **({"init_from": self._init_from} if self._init_from else {}),
        }  # fmt: skip
        update = self._own["update"]
        plan, _ = checked(words, whole=False)
        if update is not None and "step" not in _parameters(update):
            require_call(update, "update", "run", "batch")
            refuse(without_step(replace(plan, update=Spec(kind="update", name=name_of(update)))))
        return plan

    def _optim(self) -> dict[str, Any]:
        if list(self.optimizers) == [""]:
            return describe_optimizer(self.optimizers[""], **self._clipping)
        own = {"params": ["*"], **self._clipping}
        return {name: describe_optimizer(optimizer, **own) for name, optimizer in self.optimizers.items()}

    def _plan(self, words: dict[str, Any]) -> tuple[Plan, Tree]:
        """Return the plan of a run: what :meth:`fit` was asked for in ``words``, with what the trainer is made of."""
        schedules = [one for hook in self.hooks if isinstance(hook, Schedule) for one in hook.given]
        stepped = {hook.by: hook.scheduler for hook in self.hooks if isinstance(hook, TorchSchedule)}
        others = [hook for hook in self.hooks if not isinstance(hook, Schedule | TorchSchedule)]
        own = self._own
        every = {
            "model": describe_model(self.model),
            "loss": describe(own["loss"]) if own["loss"] is not None else None,
            "optim": self._optim(),
            "schedule": describe_schedule(schedules, stepped),
            "update": describe(own["update"]) if own["update"] is not None else None,
            "loop": describe(self.loop) if self.loop is not None else None,
            "metrics": [describe_metric(metric) for metric in self.metrics.values()],
            "parallel": self._strategy,
            "init_from": self._init_from,
            **words,
            "hooks": [*map(describe_hook, others), *words.get("hooks", ())],
            "extra": {"parts": list(self.parts)} if self.parts else None,
        }
        kept = {key: value for key, value in every.items() if value or key == "checkpoint"}
        return checked(kept, schedules)

    def _begin(self, plan: Plan) -> None:
        """Seed the generators if a seed was given, and set how torch computes."""
        if self.seed is not None:
            seed_everything(plan.train)
        else:
            set_computing(plan.train)

    def _require_folder(self, checkpoint: Any, resume: bool, log: Any) -> None:
        if self.folder is not None:
            return
        if checkpoint is not None or resume:
            asked = "resume" if checkpoint is None else "checkpoint"
            raise UserError(f"{asked} needs a folder to keep checkpoints in: Trainer(…, folder='runs/mine')")
        if not isinstance(log, str) and _log_of(log)[0].get("to"):
            raise UserError("writers and trackers need a folder for the run's records: Trainer(…, folder='runs/mine')")

    def _run(
        self,
        train: Data,
        val: Data | None,
        training: Training,
        *,
        sizes: tuple[int | None, int | None] = (None, None),
        workers: int = 0,
    ) -> Run:
        shuffle = training.overfit is None
        data = {"train": self._loader(train, sizes[0], shuffle=shuffle, workers=workers)}
        if not shuffle:
            _require_fixed_order(train)
        if val is not None:
            limit = training.limit_batches
            data["val"] = self._loader(val, sizes[1], shuffle=False, workers=workers, limit=limit)
        length = length_of_epoch(data["train"], training)
        peers = peers_of(self.world, self.mesh, self.wrapped, self.optimizers, self.parallel)
        clock = monotonic if peers is None else peers.clock
        run = Run(
            model=self.model,
            update=self.update,
            loop=self.loop or (loops.epochs if training.steps is None else loops.steps),
            hooks=HookTable(self.hooks, steps_per_epoch=length, clock=clock),
            data=data,
            optimizers=self.optimizers,
            evaluation=Evaluation(self.plain, self.metrics, autocast=self.step.autocast),
            max_epochs=training.epochs,
            total_steps=length_of_run(training, length),
            steps_per_epoch=length,
            world=self.world,
            mesh=self.mesh,
            peers=peers,
            clock=clock,
            ledger=self.ledger,
        )
        # An update of one's own may use the step, whose scale and skipped steps are state too.
        run.extra_parts |= self.parts | ({"step": self.step} if self.update is not self.step else {})
        if peers is not None:
            compare_ranks(run, {})
            seed_rank(self.seed or 0, self.mesh.stream)
        return run

    def _loader(
        self, data: Data, batch_size: int | None, *, shuffle: bool, workers: int = 0, limit: int | None = None
    ) -> Any:
        if batch_size is None:
            # A loader that cannot say where it is: an exact resume reads it again up to there.
            own = data if hasattr(data, "load_state_dict") else Replay(data)
            own = Sliced(own, self.mesh.share) if self.world.is_many and not _deals_out(data) else own
            return own if limit is None else Limited(own, limit)
        return Loader(
            data,
            batch_size=batch_size,
            shuffle=shuffle and not is_stream(data),
            seed=self.seed or 0,
            device=None if self.device.type == "cpu" else self.device,
            workers=workers,
            shard=self.mesh.share,
            limit=limit,
        )


def _settings(**given: Any) -> dict[str, Any]:
    """Return the settings that differ from those of a config that does not have them."""
    usual = {field.name: field.default for field in dataclasses.fields(Training)}
    return {key: value for key, value in given.items() if value is not None and _differ(value, usual.get(key, ...))}


def _differ(value: Any, usual: Any) -> bool:
    return type(value) is not type(usual) or bool(value != usual)


def _of_sections(plan: Plan, unwanted: Collection[str]) -> Iterator[Hook]:
    """Yield the hooks that the sections of a config stand for; those that were passed as objects exist already."""
    for name, kind in _SECTIONS.items():
        made = (one for one in plan.hooks if one.spec.name == name and one.priority == PRIORITY[name])
        found = None if name in unwanted else next(made, None)
        if found is not None:
            hook = kind(**found.spec.args)
            hook.every = found.every
            yield hook


def _log_of(log: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the section ``log`` of a config, and the writers that were passed as objects."""
    if isinstance(log, str) and re.fullmatch(r"[a-zA-Z_]+", log):
        raise UserError(f"log={log!r} is no interval; write log=[{log!r}] if this is a writer or a tracker")
    given = {"every": log} if not isinstance(log, Mapping | list | tuple) else log
    section = dict(given) if isinstance(given, Mapping) else {"to": list(given)}
    several = section.get("to", [])
    items = several if isinstance(several, list | tuple) else [several]
    made = [item for item in items if callable(getattr(item, "write", None))]
    section["to"] = [item for item in items if not any(item is one for one in made)]
    return {key: value for key, value in section.items() if value}, made


def _size_of(data: Data, given: int | None, usual: int, workers: int = 0) -> int | None:
    """Return the batch size for a dataset; None for batches, whose size is not ours to choose."""
    if not _gives_batches(data):
        return usual if given is None else given
    for name, value in (("batch_size", given), ("workers", workers or None)):
        if value is not None:
            raise UserError(
                f"{name}={value} does nothing: the data is a {type(data).__name__}, which gives batches already"
            )
    return None


def _gives_batches(data: Data) -> bool:
    gives_samples = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | tuple)
    stream = isinstance(data, torch.utils.data.IterableDataset)
    return isinstance(data, Loader | torch.utils.data.DataLoader) or not (gives_samples or stream)


def _as_hook(given: Hook | Callable[[Run], Any]) -> Hook:
    if isinstance(given, type):
        raise UserError(f"hooks: {given.__name__} is a class; make an object of it: {given.__name__}()")
    if isinstance(given, str | Mapping):  # as in a config
        return make_hook(lower_hook(given))
    if isinstance(given, Hook):
        require_points(given)
        return given
    _refuse_scheduler("hooks", given)
    if not callable(given):
        name = type(given).__name__
        raise UserError(f"hooks: {name} is neither a function nor a hook; write class {name}(etude.Hook)")
    return FunctionHook(given, "after_step")


def _refuse_scheduler(name: str, given: Any) -> None:
    """Refuse a scheduler or an optimizer of torch, or its ``step``, where a function or a module is due."""
    owner = getattr(given, "__self__", None)
    part = given if isinstance(given, LRScheduler | torch.optim.Optimizer) else owner
    if isinstance(part, LRScheduler):
        kind = type(part).__name__
        raise UserError(f"{name}: {kind} is a scheduler of torch; pass it as Trainer(schedule=…, schedule_by='step')")
    if isinstance(part, torch.optim.Optimizer):
        raise UserError(f"{name}: {type(part).__name__} is an optimizer; pass it as Trainer(optimizer=…)")


def _schedule_hooks(schedule: Any, by: str, optimizers: Mapping[str, torch.optim.Optimizer]) -> list[Hook]:
    if schedule is None:
        return []
    several = list(schedule.values()) if isinstance(schedule, Mapping) else schedule
    several = several if isinstance(several, list | tuple) else [several]
    if several and all(isinstance(one, LRScheduler) for one in several):
        return [TorchSchedule(one, by, among=optimizers.values()) for one in several]
    if by:
        raise UserError("schedule_by is for schedulers of torch; phases say themselves how long they last")
    return [Schedule(schedules_from(schedule))]


def _own_update(update: Callable[..., Any], step: Step) -> Any:
    """Return a user-defined update, with the engine's step if it takes one."""
    return partial(update, step=step) if "step" in _parameters(update) else update


def _parameters(function: Callable[..., Any]) -> Collection[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()


def _require_parameters(model: torch.nn.Module, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
    """Refuse optimizers that hold no parameter of ``model``: nothing would be learnt."""
    own = {id(parameter) for parameter in model.parameters()}
    held = [p for optimizer in optimizers.values() for group in optimizer.param_groups for p in group["params"]]
    if own and not any(id(parameter) in own for parameter in held):
        raise ConfigError(
            "the optimizer holds no parameter of the model", hint="make it with model.parameters() of this very model"
        )


def _require_objects(loss: Any, optimizer: Any) -> None:
    """Refuse names and classes where objects are due: names are for configs."""
    if isinstance(loss, str | type) or (loss is not None and not callable(loss)):
        name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
        raise UserError(f"loss={name!r} is no function: make an object of it, loss=torch.nn.CrossEntropyLoss()")
    for one in optimizer.values() if isinstance(optimizer, Mapping) else [optimizer]:
        if not hasattr(one, "param_groups") or isinstance(one, type):
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            raise UserError(
                f"optimizer={name!r} is no optimizer: make one, torch.optim.AdamW(model.parameters(), lr=1e-3)"
            )


def _require_fixed_order(data: Data) -> None:
    """Refuse a loader that shuffles where the same batches are due."""
    sampler = getattr(data, "sampler", None)
    if isinstance(data, torch.utils.data.DataLoader) and not isinstance(sampler, torch.utils.data.SequentialSampler):
        raise UserError("overfit needs the same batches in every epoch, and this DataLoader shuffles; pass its dataset")


def _require_data(data: Data) -> None:
    """Refuse what would be taken for batches and is none."""
    if isinstance(data, tuple) and len(data) > 1 and all(isinstance(one, torch.Tensor) for one in data):
        raise UserError("a tuple of tensors is not a dataset; wrap it: torch.utils.data.TensorDataset(inputs, targets)")
    if isinstance(data, torch.utils.data.Dataset) and not hasattr(data, "__len__") and not is_stream(data):
        raise UserError(f"the dataset {type(data).__name__} has no __len__; a stream has __iter__ instead")
    if isinstance(data, Mapping):
        names = ", ".join(map(str, data))
        raise UserError(
            f"data is a dataset or gives batches; this is a {type(data).__name__} with {names}: pass one of them, and "
            "measure others with trainer.evaluate"
        )
    first = data[0] if isinstance(data, list | tuple) and data else None
    if isinstance(first, torch.utils.data.DataLoader | Loader) or _is_dataset(first):
        raise UserError(
            f"a list is taken as a list of batches, and its first item is a {type(first).__name__}; pass that, join "
            "several with torch.utils.data.ConcatDataset, and measure others with trainer.evaluate"
        )
    if isinstance(first, list | tuple) and len(first) > 1 and _is_scalar(first[-1]):
        raise UserError(
            "a list is taken as a list of batches, and its first item looks like one sample: its target is a single "
            "number; pass a dataset, or DataLoader(list, batch_size=…)"
        )


def _is_dataset(value: Any) -> bool:
    plain = isinstance(value, torch.Tensor | list | tuple | Mapping | str) or hasattr(value, "dtype")
    return not plain and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.ndim == 0)


def _deals_out(data: Any) -> bool:
    """Return whether a loader gives every rank batches of its own, as one with torch's DistributedSampler does."""
    samplers = (getattr(data, "sampler", None), getattr(getattr(data, "batch_sampler", None), "sampler", None))
    return any(isinstance(sampler, torch.utils.data.DistributedSampler) for sampler in samplers)
