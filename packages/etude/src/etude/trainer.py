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

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from etude import dialects
from etude.build import Parts, connect
from etude.building.options import Options
from etude.building.update import evaluation_of
from etude.core import loop as loops
from etude.core.evaluation import VALIDATION, by_name, require_metric
from etude.core.hook import FunctionHook, Hook, require_call
from etude.core.run import Run
from etude.errors import UserError
from etude.errors.spelling import nearest, suggest
from etude.plan import Parallel, Plan, Training
from etude.preview.notebook import in_notebook, shortened, table
from etude.script.arguments import (
    hook_of,
    hooks_of_sections,
    log_of,
    refuse_scheduler,
    require_objects,
    schedule_hooks,
    unusual_settings,
)
from etude.script.data import (
    Data,
    gives_batches,
    loader_of,
    require_data,
    require_fixed_order,
    size_of,
    validation_sets,
)
from etude.script.placement import Placement
from etude.script.words import (
    describe,
    describe_data,
    describe_hook,
    describe_metric,
    describe_model,
    describe_optimizer,
    name_of,
    plan_of_settings,
    plan_with_hooks,
    require_real,
)
from etude.session.opening import end_script
from etude.session.session import Session
from etude.units import Amount

if TYPE_CHECKING:
    from etude.config.tree import Tree

F = TypeVar("F", bound=Callable[[Run], Any])


P = ParamSpec("P")


R = TypeVar("R")


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
            refuse_scheduler(name, given)
        require_objects(loss, optimizer)
        if loop is not None:
            require_call(loop, "loop", "run")
        #: What was asked for, in the words of a config: what :meth:`fit` adds to.
        self.settings: dict[str, Any] = unusual_settings(
            accumulate=accumulate, precision=precision, nonfinite=nonfinite, nonfinite_limit=nonfinite_limit, seed=seed,
            deterministic=deterministic, threads=threads, device=device,
        )  # fmt: skip
        several = clip if isinstance(clip, list | tuple) else [] if clip is None else [clip]
        described = [one if isinstance(one, str | Mapping) else describe(one) for one in several]
        self._clipping = {"clip_norm": clip_norm, "clip_value": clip_value, "clip": described or None}
        self._init_from = str(init_from) if isinstance(init_from, Path) else init_from
        self._own = {"loss": loss, "update": update, "schedule": schedule, "schedule_by": schedule_by}
        self.optimizers = dict(optimizer) if isinstance(optimizer, Mapping) else {"": optimizer}
        plan = plan_of_settings(model, self._optim(), self.settings, init_from=self._init_from, update=update)
        placed = Placement(
            model, self.optimizers, plan, loss=loss, update=update, clip=several, parallel=parallel
        )  # fmt: skip
        self.placed, self.model, self.step, self.update = placed, placed.model, placed.step, placed.update
        self._strategy = parallel if isinstance(parallel, Mapping) else {"strategy": placed.parallel.strategy}
        self.loop = loop
        self.metrics = by_name(require_metric(metric) for metric in metrics)
        self.hooks = [hook_of(hook) for hook in [*hooks, *schedule_hooks(schedule, schedule_by, self.optimizers)]]
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
        val: Data | Mapping[str, Data] | None = None,
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

        ``val`` is a dataset or batches, or several: ``{"val": clean, "val_noisy": noisy}``.

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
        several = validation_sets(val)
        for data in (train, *several.values()):
            require_data(data)
        size = size_of(train, batch_size, 32, workers)
        sizes = {
            split: None if size is not None and gives_batches(data) else size_of(data, batch_size, 32)
            for split, data in several.items()
        }
        length = unusual_settings(epochs=epochs, steps=steps, validate=validate, max_time=max_time)
        length |= unusual_settings(limit_batches=limit_batches, overfit=overfit)
        saving: dict[str, Any] = {"every": checkpoint, "best": best} if isinstance(checkpoint, str) else {}
        if isinstance(checkpoint, Mapping):
            saving = {"every": "1ep", **checkpoint}
        logging, writers = log_of(log)
        words: dict[str, Any] = {
            "train": {**self.settings, **length},
            "data": {"train": describe_data(train, size, workers)},
            "checkpoint": {key: value for key, value in saving.items() if value != ""} or False,
            "log": logging,
        }
        for split, data in several.items():
            words["data"][split] = describe_data(data, sizes[split], workers, trains=False)
        if isinstance(checkpoint, Hook):
            words["hooks"] = [describe_hook(checkpoint)]
        plan, tree = self._plan(words)
        self.placed.prepare(plan, seeded=self.seed is not None)
        run = self._run(train, several, plan.train, sizes={"train": size, **sizes}, workers=workers)
        unwanted = ("Checkpoint", "Evaluate") if overfit is not None else ("Checkpoint",) if fast_dev_run else ()
        for hook in hooks_of_sections(plan, () if saving else ("Checkpoint",)):
            if hook.name not in unwanted:
                run.hooks.add(hook)
        if isinstance(checkpoint, Hook) and not unwanted:
            run.hooks.add(checkpoint)
        for hook in run.hooks:
            if hasattr(hook, "attach"):
                hook.attach(run)
        if fast_dev_run:
            dialects.of(None).shorten_run(run)
        require_real(plan, run, folder=self.folder, saves=checkpoint is not None)
        options = Options(folder=self.folder, resume="" if resume else None, quiet=self.quiet)
        lasting = self.folder is not None and not fast_dev_run
        try:
            with Session(run, options, lasting=lasting, began=began, plan=plan, tree=tree, writers=writers):
                loops.train(run)
        except Exception as error:
            if hasattr(error, "etude_where"):
                error.add_note(f"in {error.etude_where}")
            if in_notebook():
                raise shortened(error) from error.__cause__
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
        require_data(data)
        loader = loader_of(self.placed, data, size_of(data, batch_size, 256), seed=self.seed)
        run = self._run(loader, {}, Training(epochs=0))
        if metrics is not None:
            chosen = by_name(require_metric(metric) for metric in metrics)
            run.evaluation = evaluation_of(self.placed.mesh)(self.placed.plain, chosen, autocast=self.step.autocast)
        return loops.evaluate(run, loader, run.evaluation)

    def predict(self, data: Data, *, batch_size: int | None = None) -> Any:
        """Return the model's outputs for all samples, in order, on the CPU: a tensor, or a mapping of tensors.

        Samples may come with or without their targets.
        """
        require_data(data)
        loader = loader_of(self.placed, data, size_of(data, batch_size, 256), seed=self.seed, in_parts=False)
        run = self._run(loader, {}, Training(epochs=0))
        return self.placed.predict(run, loader, self.hooks)

    # -- in the words of a config --------------------------------------------------------------------------------

    def _optim(self) -> dict[str, Any]:
        if list(self.optimizers) == [""]:
            return describe_optimizer(self.optimizers[""], **self._clipping)
        own = {"params": ["*"], **self._clipping}
        return {name: describe_optimizer(optimizer, **own) for name, optimizer in self.optimizers.items()}

    def _plan(self, words: dict[str, Any]) -> tuple[Plan, Tree]:
        """Return the plan of a run: what :meth:`fit` was asked for in ``words``, with what the trainer is made of."""
        own = self._own
        given = {"loss": own["loss"], "update": own["update"], "loop": self.loop}
        every = {
            "model": describe_model(self.model),
            **{name: describe(part) for name, part in given.items() if part is not None},
            "optim": self._optim(),
            "metrics": [describe_metric(metric) for metric in self.metrics.values()],
            "parallel": self._strategy,
            "init_from": self._init_from,
            **words,
            "extra": {"parts": list(self.parts)} if self.parts else None,
        }
        return plan_with_hooks(every, self.hooks, unknown=("metric",) if hasattr(self.model, VALIDATION) else ())

    def _require_folder(self, checkpoint: Any, resume: bool, log: Any) -> None:
        if self.folder is not None:
            return
        if checkpoint is not None or resume:
            asked = "resume" if checkpoint is None else "checkpoint"
            raise UserError(f"{asked} needs a folder to keep checkpoints in: Trainer(…, folder='runs/mine')")
        if not isinstance(log, str) and log_of(log)[0].get("to"):
            raise UserError("writers and trackers need a folder for the run's records: Trainer(…, folder='runs/mine')")

    def _run(
        self,
        train: Data,
        several: Mapping[str, Data],
        training: Training,
        *,
        sizes: Mapping[str, int | None] | None = None,
        workers: int = 0,
    ) -> Run:
        placed, shuffle = self.placed, training.overfit is None
        size = (sizes or {}).get
        data = {"train": loader_of(placed, train, size("train"), seed=self.seed, shuffle=shuffle, workers=workers)}
        if not shuffle:
            require_fixed_order(train)
        for split, val in several.items():
            limit = training.limit_batches
            data[split] = loader_of(placed, val, size(split), seed=self.seed, workers=workers, limit=limit)
        parts = Parts(
            self.model,
            data,
            self.optimizers,
            self.update,
            self.step,
            self.loop or (loops.epochs if training.steps is None else loops.steps),
            evaluation_of(placed.mesh)(self.placed.plain, self.metrics, autocast=self.step.autocast),
            self.hooks,
            self.parts,
        )
        known = {"world": placed.world, "mesh": placed.mesh, "ledger": self.ledger}
        run = connect(training, parts, peers=placed.peers(), **known)
        placed.start_together(run, self.seed or 0)
        return run
