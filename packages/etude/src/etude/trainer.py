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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import torch
from torch.optim.lr_scheduler import LRScheduler

from etude.build import (
    Options,
    compare_ranks,
    join_ranks,
    parallel_of,
    peers_of,
    pick_device,
    seed_everything,
    wrap_for,
)
from etude.core import loop as loops
from etude.core.evaluation import Evaluation, metric_name, require_metric
from etude.core.forward import Forward
from etude.core.hook import FunctionHook, Hook, HookTable, require_call, require_points
from etude.core.predict import predict
from etude.core.run import Run
from etude.core.update import Step
from etude.data.loader import Loader, is_stream
from etude.data.order import Sliced
from etude.data.resume import Replay
from etude.data.seeds import seed_rank
from etude.dist.world import World
from etude.errors import ConfigError, UserError
from etude.errors.spelling import nearest, suggest
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.ema import Ema
from etude.hooks.evaluate import Evaluate
from etude.hooks.log import Log
from etude.hooks.schedule import Schedule, TorchSchedule
from etude.hooks.timer import Timer
from etude.losses.outputs import fitted
from etude.plan import NONFINITE, PRECISIONS, Parallel, Training
from etude.schedules.phases import schedules_from
from etude.session.lengths import length_of
from etude.session.session import Session, end_script
from etude.session.unsaved import warn_of_unsaved_state
from etude.units import Amount, parse

Data = Iterable[Any] | Any
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


def _meant(name: str, own: Collection[str]) -> str:
    """Return the hint for an unknown keyword: one of ``own``, else one of ``fit`` or ``Trainer``."""
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

    Under torchrun all processes train one model together: ``parallel`` says how (``"ddp"``, ``{"strategy": "fsdp",
    "wrap": ["Block"]}``), and ``batch_size`` is that of all of them.
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
        nonfinite: str = "stop",
        seed: int | None = None,
        quiet: bool = False,
        parallel: str | Mapping[str, Any] | Parallel = "auto",
    ) -> None:
        _require_choice("precision", precision, PRECISIONS)
        _require_choice("nonfinite", nonfinite, NONFINITE)
        _require_objects(loss, optimizer)
        if loop is not None:
            require_call(loop, "loop", "run")
        self.world = World.from_environment()
        self.device = pick_device(device, self.world)
        join_ranks(self.world, self.device)
        self.model = model.to(self.device)
        self.optimizers = dict(optimizer) if isinstance(optimizer, Mapping) else {"": optimizer}
        _require_parameters(self.model, self.optimizers)
        self.parallel = parallel_of(parallel)
        if self.parallel.fault_tolerant:
            raise ConfigError("parallel.fault_tolerant works with `etude train` and a config, not with Trainer")
        # Before the step is made: sharding puts other parameters into the optimizers' groups.
        self.wrapped = wrap_for(
            self.model, self.optimizers, self.parallel, self.world, self.device, by_hand=update is not None
        )
        losses = {"loss": fitted(loss)} if loss is not None else {}
        # Ranks evaluate different numbers of batches. DDP would wait for the others in each, so `plain` bypasses it.
        self.forward, self.plain = Forward(self.wrapped.called, losses), Forward(self.model, losses)
        self.step = Step(
            self.forward,
            self.optimizers,
            accumulate=accumulate,
            clip_norm=clip_norm,
            precision=precision,
            nonfinite=nonfinite,
            device=self.device,
        )
        self.update = self.step if update is None else _own_update(update, self.step)
        self.loop = loop
        self.metrics = {metric_name(metric): require_metric(metric) for metric in metrics}
        self.hooks = [_as_hook(hook) for hook in [*hooks, *_schedule_hooks(schedule, schedule_by, self.optimizers)]]
        self.parts = dict(parts or {})
        self.folder, self.seed, self.quiet = folder, seed, quiet

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
        batch_size: int = 32,
        workers: int = 0,
        validate: str = "1ep",
        log: str = "50step",
        checkpoint: str | Hook | None = None,
        best: str = "",
        resume: bool = False,
    ) -> Run:
        """Train on a dataset, in batches of ``batch_size``, or on anything that gives batches, for epochs or steps.

        ``checkpoint="1ep"`` saves into the trainer's folder, and ``best="accuracy"`` keeps the best one too. ``resume``
        continues from the newest checkpoint in the folder, or begins if there is none. Ctrl-C finishes the step, saves,
        and raises ``KeyboardInterrupt``; SIGTERM raises ``SystemExit(143)``.
        """
        if (epochs is None) == (steps is None):
            raise UserError("say either epochs or steps: trainer.fit(data, epochs=10)")
        _require_count("epochs", epochs)
        _require_count("steps", steps)
        if self.folder is None and (checkpoint is not None or resume):
            asked = "resume" if checkpoint is None else "checkpoint"
            raise UserError(f"{asked} needs a folder to keep checkpoints in: Trainer(…, folder='runs/mine')")
        if best and not isinstance(checkpoint, str):
            raise UserError(f"best={best!r} goes with checkpoint='1ep'; a Checkpoint hook has its own `best`")
        if self.seed is not None:
            seed_everything(Training(seed=self.seed))
        run = self._run(train, val, batch_size=batch_size, workers=workers, epochs=epochs, steps=steps)
        for hook in self._own_hooks(validate if val is not None else None, log, checkpoint, best):
            run.hooks.add(hook)
        for hook in run.hooks:
            if hasattr(hook, "attach"):
                hook.attach(run)
        if checkpoint is not None:
            warn_of_unsaved_state(run)
        options = Options(folder=self.folder, resume="" if resume else None, quiet=self.quiet)
        try:
            with Session(run, options, lasting=self.folder is not None):
                loops.train(run)
        except Exception as error:
            if hasattr(error, "etude_where"):
                error.add_note(f"in {error.etude_where}")
            raise
        end_script(run)
        return run

    def evaluate(self, data: Data, *, batch_size: int = 256) -> dict[str, float]:
        """Return losses and metrics on a dataset or on batches. Nothing is trained."""
        loader = self._loader(data, batch_size, shuffle=False)
        run = self._run(loader, None, batch_size=batch_size, workers=0, epochs=0, steps=None)
        return loops.evaluate(run, loader, run.evaluation)

    def predict(self, data: Data, *, batch_size: int = 256) -> Any:
        """Return the model's outputs for all samples, in order, on the CPU: a tensor, or a mapping of tensors.

        Samples may come with or without their targets.
        """
        loader = self._loader(data, batch_size, shuffle=False)
        run = self._run(loader, None, batch_size=batch_size, workers=0, epochs=0, steps=None)
        averages = [hook for hook in self.hooks if isinstance(hook, Ema)]
        for average in averages:  # the weights that `evaluate` measures
            average.before_eval(run)
        try:
            return predict(self.plain, loader, device=self.device, autocast=self.step.autocast)
        finally:
            for average in averages:
                average.after_eval(run)

    def _run(
        self, train: Data, val: Data | None, *, batch_size: int, workers: int, epochs: int | None, steps: int | None
    ) -> Run:
        data = {"train": self._loader(train, batch_size, shuffle=True, workers=workers)}
        if val is not None:
            data["val"] = self._loader(val, batch_size, shuffle=False, workers=workers)
        length = length_of(data["train"])
        total = steps if steps is not None else epochs * length if length is not None and epochs is not None else None
        peers = peers_of(self.world, self.wrapped, self.optimizers, self.parallel)
        clock = monotonic if peers is None else peers.clock
        run = Run(
            model=self.model,
            update=self.update,
            loop=self.loop or (loops.epochs if steps is None else loops.steps),
            hooks=HookTable(self.hooks, steps_per_epoch=length, clock=clock),
            data=data,
            optimizers=self.optimizers,
            evaluation=Evaluation(self.plain, self.metrics, autocast=self.step.autocast),
            max_epochs=epochs,
            total_steps=total,
            steps_per_epoch=length,
            world=self.world,
            peers=peers,
            clock=clock,
        )
        # An update of one's own may use the step, whose scale and skipped steps are state too.
        run.extra_parts |= self.parts | ({"step": self.step} if self.update is not self.step else {})
        if peers is not None:
            compare_ranks(run, {})
            seed_rank(self.seed or 0, self.world)
        return run

    def _loader(self, data: Data, batch_size: int, *, shuffle: bool, workers: int = 0) -> Any:
        gives_samples = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | tuple)
        stream = isinstance(data, torch.utils.data.IterableDataset)
        _require_data(data)
        if isinstance(data, Loader | torch.utils.data.DataLoader) or not (gives_samples or stream):
            # A loader that cannot say where it is: an exact resume reads it again up to there.
            own = data if hasattr(data, "load_state_dict") else Replay(data)
            return Sliced(own, self.world.shard) if self.world.is_many and not _deals_out(data) else own
        return Loader(
            data,
            batch_size=batch_size,
            shuffle=shuffle and not is_stream(data),
            seed=self.seed or 0,
            device=None if self.device.type == "cpu" else self.device,
            workers=workers,
            shard=self.world.shard,
        )

    def _own_hooks(self, validate: str | None, log: str, checkpoint: str | Hook | None, best: str) -> list[Hook]:
        hooks: list[Hook] = [Timer(), _every(log, Log())]
        if validate is not None:
            hooks.append(_every(validate, Evaluate()))
        if checkpoint is not None:
            hooks.append(checkpoint if isinstance(checkpoint, Hook) else _every(checkpoint, Checkpoint(best=best)))
        return hooks


def _every(amount: str, hook: Hook) -> Hook:
    hook.every = parse(amount)
    return hook


def _as_hook(given: Hook | Callable[[Run], Any]) -> Hook:
    if isinstance(given, type):
        raise UserError(f"hooks: {given.__name__} is a class; make an object of it: {given.__name__}()")
    if isinstance(given, Hook):
        require_points(given)
        return given
    stepped = given if isinstance(given, LRScheduler) else getattr(given, "__self__", None)
    if isinstance(stepped, LRScheduler):
        name = type(stepped).__name__
        raise UserError(f"hooks: {name} is a scheduler of torch; pass it as Trainer(schedule=…, schedule_by='step')")
    if not callable(given):
        name = type(given).__name__
        raise UserError(f"hooks: {name} is neither a function nor a hook; write class {name}(etude.Hook)")
    return FunctionHook(given, "after_step")


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
    """Return a user-defined update, with the engine's step if it takes one; refuse options that it would ignore."""
    if "step" in _parameters(update):
        return partial(update, step=step)
    require_call(update, "update", "run", "batch")
    ignored = {"accumulate": step.accumulate != 1, "precision": step.precision != "fp32", "clip_norm": step.clip_norm}
    for name, given in ignored.items():
        if given:
            raise UserError(f"{name} does nothing with an update of your own; take (run, batch, step) and use step")
    return update


def _parameters(function: Callable[..., Any]) -> Collection[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()


def _require_choice(name: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise ConfigError(f"{name}: {given!r} is not one of {', '.join(known)}", hint=suggest(str(given), known))


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


def _require_count(name: str, given: Any) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
        raise UserError(f"{name}={given!r} is not a whole number")


def _require_data(data: Data) -> None:
    """Refuse what would be taken for batches and is none."""
    if isinstance(data, tuple) and len(data) > 1 and all(isinstance(one, torch.Tensor) for one in data):
        raise UserError("a tuple of tensors is not a dataset; wrap it: torch.utils.data.TensorDataset(inputs, targets)")
    if isinstance(data, torch.utils.data.Dataset) and not hasattr(data, "__len__") and not is_stream(data):
        raise UserError(f"the dataset {type(data).__name__} has no __len__; a stream has __iter__ instead")
    first = data[0] if isinstance(data, list) and data else None
    if isinstance(first, list | tuple) and len(first) > 1 and _is_scalar(first[-1]):
        raise UserError(
            "a list is taken as a list of batches, and its first item looks like one sample: its target is a single "
            "number; pass a dataset, or DataLoader(list, batch_size=…)"
        )


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.ndim == 0)


def _deals_out(data: Any) -> bool:
    """Return whether a loader gives every rank batches of its own, as one with torch's DistributedSampler does."""
    samplers = (getattr(data, "sampler", None), getattr(getattr(data, "batch_sampler", None), "sampler", None))
    return any(isinstance(sampler, torch.utils.data.DistributedSampler) for sampler in samplers)
