"""Builds a Run from a Plan: model, data, optimizers, schedules, hooks, each after what it depends on.

:func:`assemble` does it in one function. This is the only module that knows all parts.
"""

from __future__ import annotations

import importlib
import inspect
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from etude import dialects, registry
from etude.checkpoint.plan_changes import facts
from etude.config.imports import is_folder
from etude.core.cut import CutForward
from etude.core.evaluation import Evaluation, by_name, require_metric
from etude.core.forward import Forward
from etude.core.hook import FunctionHook, Hook, HookTable, require_points
from etude.core.pipelined import PipelinedForward, PipelinedStep
from etude.core.run import Run
from etude.core.update import Step
from etude.data.loader import Loader, is_stream
from etude.data.seeds import seed_rank
from etude.dist import group, same_code
from etude.dist.jobs import reports
from etude.dist.layout.mesh import Mesh
from etude.dist.layout.pipeline import numbered
from etude.dist.layout.wrap import Wrapped, mesh_of, require_fitting, strategy_of, whole_losses, wrap
from etude.dist.peers import Peers, mean_over_ranks
from etude.dist.torchft import Place, Replicas
from etude.dist.world import ALONE, World
from etude.errors import ConfigError, EtudeError, UserCodeError, placed
from etude.events.record import is_timing
from etude.fast_dataclass import field, record, replace
from etude.hooks.upkeep import Compiled
from etude.inspection.paths import located
from etude.losses.outputs import fitted
from etude.models.compile import can_compile, channels_last, compiled_loss, recompute
from etude.optim.clipping import describe_wrong
from etude.optim.factory import build_optimizer, without_fused
from etude.plan import HookPlan, Parallel, Plan, Spec, Training
from etude.plan import Loader as LoaderPlan
from etude.registry import DATASETS, TABLES, Registry, import_file, trust, walk

_DEVICES = "write auto, cpu, cuda, cuda:1 or mps"
KINDS: dict[str, Registry] = {table.kind: table for table in TABLES.values()}


@record(kw_only=True)
class Options:
    """Options of the command line or of ``etude.train`` that are not in the plan: the folder, resume, signals."""

    folder: Path | None = None
    #: None: start anew; ``""``: the newest usable checkpoint of this run; else the one at this path.
    resume: str | None = None
    restart: bool = False
    quiet: bool = False
    trust: bool = False
    allow_change: tuple[str, ...] = ()
    #: Refuse to resume with other code than the run began with.
    strict: bool = False
    chaos: str = ""
    #: Seconds between a signal and the end, for the step and the save.
    grace: float = 30.0
    #: Flags of a dialect's own front end (``work_dir``, ``no_validate``, ``amp`` …).
    extras: Mapping[str, Any] = field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(self, *, folder: Path | str | None = None, **options: Any) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.folder, str):
            object.__setattr__(self, "folder", Path(self.folder))


def build(plan: Plan, options: Options | None = None) -> Run:
    """Build and connect everything that the plan names. Nothing is written and nothing trained."""
    options = options or Options()
    registry.load_builtins()
    return dialects.of(plan).build(plan, options, assemble)


def assemble(plan: Plan, options: Options) -> Run:
    """Build the run of a native plan: model, data, optimizers, hooks, each after what it depends on."""
    world = World.from_environment()
    place = _replica(plan.parallel, world)
    plan = for_world(plan, world if place is None else World(place.number, place.count))
    import_modules(plan)
    seed_everything(plan.train)
    device = pick_device(plan.train.device, world)
    mesh = mesh_of(plan.parallel, world)
    join_ranks(world, device)
    model = _model(plan, device)
    data = _loaders(plan, device, mesh, mesh.share if place is None else place.share)
    _require_even_parts(plan, mesh, data["train"])
    wrapped, optimizers = _wrapped(plan, model, mesh, device)
    losses = whole_losses(_losses(plan.losses, device), mesh)
    forward = forward_of(wrapped, losses)
    compiles = bool(plan.train.compile) and can_compile(_words_of_compile(plan.train), device)
    if compiles:
        forward = _compiled(forward, _words_of_compile(plan.train))
    step, update = _update(plan, forward, optimizers, mesh, device)
    steps_per_epoch = length_of_epoch(data["train"], plan.train)
    peers = _peers_of_plan(plan, world, mesh, place, wrapped, optimizers)
    clock = monotonic if peers is None else peers.clock
    run = Run(
        model=model,
        update=update,
        loop=_loop(plan.loop),
        hooks=HookTable(steps_per_epoch=steps_per_epoch, clock=clock),
        data=data,
        optimizers=optimizers,
        world=world,
        mesh=mesh,
        peers=peers,
        clock=clock,
        plan=plan,
        ledger=plan.ledger,
        steps_per_epoch=steps_per_epoch,
        max_epochs=plan.train.epochs,
        total_steps=length_of_run(plan.train, steps_per_epoch),
    )
    if plan.train.overfit is not None:
        overfit(run, plan.train)
    if update is not step:
        run.extra_parts["step"] = step
    # DDP sends buffers around at every call; an evaluation calls the module itself.
    seen = forward if peers is None else forward_of(wrapped, losses, model)
    run.evaluation = Evaluation(seen, _metrics(plan, device), autocast=getattr(update, "autocast", step.autocast))
    for hook_plan in plan.hooks:
        run.hooks.add(_hook(hook_plan, run))
    if compiles:
        run.hooks.add(Compiled(losses=len(losses)))
    _start_together(run, plan, place)
    return run


def _require_even_parts(plan: Plan, mesh: Mesh, loader: Any) -> None:
    """Refuse batches that a pipeline cannot cut into equal parts: stages agree once on the shapes that they send."""
    train, pipeline, shares = plan.data["train"], plan.parallel.pipeline, mesh.share[1]
    if pipeline.size == 1:
        return
    size, whole = train.batch_size, shares * pipeline.parts
    if size % whole:
        text = f"data.train.batch_size is {size}; {shares} × {pipeline.parts} microbatches need a multiple of {whole}"
        raise ConfigError(text, at=str(train.at), hint=f"write batch_size: {-(-size // whole) * whole}")
    rest = len(loader.dataset) % size if hasattr(loader.dataset, "__len__") else 0
    if rest and not train.drop_last:
        text = f"the last batch of an epoch has {rest} samples instead of {size}; stages send tensors of one shape"
        raise ConfigError(text, at=str(train.at), hint="write drop_last: true")


def _wrapped(
    plan: Plan, model: torch.nn.Module, mesh: Mesh, device: torch.device
) -> tuple[Wrapped, dict[str, torch.optim.Optimizer]]:
    """Wrap the model and build its optimizers."""

    def built() -> dict[str, torch.optim.Optimizer]:
        return {name: build_optimizer(optimizer, model) for name, optimizer in plan.optimizers.items()}

    if mesh.sizes["pipeline"] > 1:  # the groups are those of the whole model, of which a rank then keeps a part
        optimizers = built()
        return wrap_for(model, optimizers, plan.parallel, mesh, device, by_hand=plan.update.name != "Step"), optimizers
    wrapped = wrap(model, plan.parallel, mesh, device, by_hand=plan.update.name != "Step")
    # After the model was wrapped: FSDP puts other parameters in place of the model's.
    return wrapped, built()


def forward_of(wrapped: Wrapped, losses: dict[str, Callable[..., torch.Tensor]], called: Any = None) -> Forward:
    """Return what calls the wrapped model, or ``called`` in its place, and computes its losses."""
    if wrapped.pipe is not None:
        return PipelinedForward(wrapped.pipe, losses, wrapped.model)
    called = wrapped.called if called is None else called
    return Forward(called, losses) if wrapped.context is None else CutForward(wrapped.context, losses, called)


def step_of(forward: Forward) -> type[Step]:
    """Return the kind of step that such a forward pass needs."""
    return PipelinedStep if isinstance(forward, PipelinedForward) else Step


def _model(plan: Plan, device: torch.device) -> torch.nn.Module:
    model: torch.nn.Module = make(plan.model).to(device)
    if plan.train.gradient_checkpointing:
        at = plan.places.get(("train", "gradient_checkpointing"), "")
        recompute(model, plan.train.gradient_checkpointing, at=str(at))
    if plan.train.channels_last:
        channels_last(model)
    return model


def _peers_of_plan(
    plan: Plan,
    world: World,
    mesh: Mesh,
    place: Place | None,
    wrapped: Wrapped,
    optimizers: dict[str, torch.optim.Optimizer],
) -> Any:
    """Return the processes that train with this one: replicas, which come and go, or ranks. None if there are none."""
    peers = peers_of(world, mesh, wrapped, optimizers, plan.parallel)
    if place is None:
        return peers
    return Replicas(place, at=str(plan.parallel.at), timeout=reports.timeout().total_seconds())


def _start_together(run: Run, plan: Plan, place: Place | None) -> None:
    """Add the hooks by which replicas join and leave, or compare ranks; then seed each process differently."""
    if place is not None:
        run.hooks.add(FunctionHook(join_replicas, "before_train", priority=110))
        run.hooks.add(FunctionHook(leave_replicas, "after_train", priority=130))
        seed_rank(plan.train.seed, World(place.number, place.count))
    elif run.peers is not None:
        compare_ranks(run, facts(plan))
        # Only now: until here all ranks draw the same numbers, and so the same weights.
        seed_rank(plan.train.seed, run.place.stream)


def join_replicas(run: Run) -> None:
    run.peers.join(run)


def leave_replicas(run: Run) -> None:
    run.peers.leave()


def _replica(parallel: Parallel, world: World) -> Place | None:
    """Return which replica this process is, if ``parallel.fault_tolerant`` lets replicas leave and join."""
    if not parallel.fault_tolerant:
        return None
    if world.is_many:
        raise ConfigError(
            "parallel.fault_tolerant: a replica is one process, started by itself", at=str(parallel.at),
            hint="start `etude train` once for each replica, without --nproc and torchrun",
        )  # fmt: skip
    return Place.from_environment(str(parallel.at))


def for_world(plan: Plan, world: World) -> Plan:
    """Return the plan with the global batch size, if the config gives that of one process."""
    shares = max(1, world.size // plan.parallel.together)
    data = {
        split: loader
        if loader.batch_size_per_rank is None
        else replace(loader, batch_size=loader.batch_size_per_rank * shares, batch_size_per_rank=None)
        for split, loader in plan.data.items()
    }
    return replace(plan, data=data)


def join_ranks(world: World, device: torch.device) -> None:
    """Join the process group, if there are several ranks. The launcher says how long to wait for the others."""
    if world.is_many:
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        group.join(world, backend=backend, timeout=reports.timeout())


def parallel_of(given: str | Mapping[str, Any] | Parallel) -> Parallel:
    """Return the settings for several processes from what a script passes: a strategy, or a mapping as in a config."""
    from etude.config.tree import Tree
    from etude.dialects.native.lower import lower_parallel

    if isinstance(given, Parallel):
        return given
    return lower_parallel(Tree({"parallel": {"strategy": given} if isinstance(given, str) else dict(given)}))


def wrap_for(
    model: torch.nn.Module,
    optimizers: Mapping[str, torch.optim.Optimizer],
    parallel: Parallel,
    mesh: Mesh,
    device: torch.device,
    *,
    by_hand: bool = False,
) -> Wrapped:
    """Wrap a model whose optimizers exist already. Where FSDP replaces parameters, the optimizers get the new ones."""
    before = dict(model.named_parameters())
    wrapped = wrap(model, parallel, mesh, device, by_hand=by_hand)
    names = {id(param): name for name, param in before.items()}
    after = dict(model.named_parameters())
    if wrapped.pipe is not None:
        for optimizer in optimizers.values():
            numbered(optimizer, {key: after[name] for key, name in names.items() if name in after})
            without_fused(optimizer, model)
        return wrapped
    for optimizer in optimizers.values():
        for settings in optimizer.param_groups:
            settings["params"] = [after[names[id(p)]] if id(p) in names else p for p in settings["params"]]
    return wrapped


def peers_of(
    world: World, mesh: Mesh, wrapped: Wrapped, optimizers: dict[str, torch.optim.Optimizer], parallel: Parallel
) -> Peers | None:
    """Return the other ranks, if there are any and the optimizers can work with them."""
    if not world.is_many:
        return None
    strategy = "split" if mesh.sizes["tensor"] > 1 else strategy_of(parallel, mesh)
    require_fitting(optimizers, strategy, at=str(parallel.at))
    return Peers(
        world,
        sync=wrapped.sync,
        by_hand=wrapped.by_hand,
        finish=wrapped.finish,
        stage=wrapped.stage,
        carrier=wrapped.carrier,
    )


def compare_ranks(run: Run, known: Mapping[str, Any]) -> None:
    """Compare the plan, data and code of every rank with rank 0's, and let log lines show the mean over ranks."""
    data = {f"data.{split}": _known_data(loader) for split, loader in run.data.items()}
    group.require_agreement(
        {**known, **data, "processes": run.world.size, **same_code.versions(), **same_code.of_user()}
    )
    run.events.gather = lambda own: mean_over_ranks(group.gather(own), is_timing)


def _known_data(loader: Any) -> str:
    """Return the number of samples and the fingerprint of a loader's data, as far as it knows them."""
    state = loader.state_dict() if isinstance(loader, Loader) else {}
    return " ".join(f"{key} {state[key]}" for key in ("samples", "fingerprint") if state.get(key) is not None)


def _words_of_compile(training: Training) -> Mapping[str, Any]:
    return training.compile if isinstance(training.compile, Mapping) else {}


def _compiled(forward: Forward, words: Mapping[str, Any]) -> Forward:
    """Compile model and losses with their backward passes. Optimizers have kernels that are fused already."""
    losses = {name: compiled_loss(loss, words) for name, loss in forward.losses.items()}
    return Forward(torch.compile(forward.model, **words), losses)  # type: ignore[arg-type]


def make(spec: Spec, *args: Any, **extra: Any) -> Any:
    """Build the object that ``spec`` names; specs among its arguments are built first."""
    if spec.kind not in KINDS:
        table = next((table for table in KINDS.values() if spec.name in table), KINDS["model"])
        return table.build(_filled(spec), *args, **extra)
    try:
        return KINDS[spec.kind].build(_filled(spec), *args, **extra)
    except EtudeError:
        raise
    except Exception as error:
        raise UserCodeError(f"{spec.at}: {spec.kind} {spec.name} raised {type(error).__name__}: {error}") from error


def import_modules(plan: Plan) -> None:
    """Import what the config lists under ``imports``: what it registers becomes usable by name."""
    roots = [Path(file).parent for file in plan.files[:1]]
    for entry in plan.imports:
        if entry.endswith(".py"):
            path = next((p for root in [*roots, Path.cwd()] if (p := root / entry).is_file()), None)
            if path is None:
                raise ConfigError(f"imports: there is no file {entry}", at=_file(plan))
            trust(_guarded(plan, entry, partial(import_file, str(path), path.stem)).__name__)
            continue
        if is_folder(entry):
            there = [path for root in roots if (path := (root / entry).resolve()).is_dir()]
            if not there:
                raise ConfigError(f"imports: there is no folder {entry}", at=_file(plan))
            roots += there[:1]
            continue
        for root in [str(root) for root in roots if str(root) not in sys.path]:
            sys.path.insert(0, root)
        _guarded(plan, entry, partial(importlib.import_module, entry))
        trust(entry)


def seed_everything(training: Training) -> None:
    """Seed Python's, numpy's and torch's generators from one seed, and set how torch computes."""
    random.seed(training.seed)
    # numpy takes 32 bits.
    np.random.seed(training.seed % 2**32)
    torch.manual_seed(training.seed)
    set_computing(training)


def set_computing(training: Training) -> None:
    """Set how torch computes: deterministically or not, how exactly, and in how many threads."""
    if training.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=training.deterministic == "warn")
    if training.matmul is not None:
        torch.set_float32_matmul_precision(training.matmul)
    if training.threads is not None:
        torch.set_num_threads(training.threads)


def pick_device(name: str, world: World = ALONE) -> torch.device:
    """Return the device. ``auto`` is the accelerator if there is one, else the CPU; ranks of one machine take one
    each."""
    if world.is_many and torch.cuda.is_available() and name in ("auto", "cuda"):
        torch.cuda.set_device(world.local_rank % torch.cuda.device_count())
    if name != "auto":
        try:
            # A tensor there: `torch.device` also takes devices that this machine does not have.
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            said = str(error).splitlines()[0]
            # torch answers an unknown word with all devices it was ever built for.
            said = "no such device" if said.startswith("Expected one of") else said
            raise ConfigError(f"train.device: {name} cannot be used: {said}", hint=_DEVICES) from error
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _loaders(plan: Plan, device: torch.device, mesh: Mesh, share: tuple[int, int]) -> dict[str, Any]:
    """Build the loaders of all splits, the training data first: the others take its columns and classes."""
    made: dict[str, Any] = {}
    for split in sorted(plan.data, key=lambda split: split != "train"):
        train = made["train"].dataset if "train" in made else None
        own = share if split == "train" else mesh.share
        made[split] = _loader(split, plan.data[split], plan, device, own, train)
    return {split: made[split] for split in plan.data}


def make_dataset(plan: Plan, spec: Spec, train: Any = None) -> Any:
    """Build a dataset of a plan. A dataset of Étude takes the columns and classes of the training data ``train``."""
    spec = located(spec, plan.files)
    first = plan.data.get("train")
    own = DATASETS.origin(spec.name).startswith("etude.data.")
    if train is not None and first is not None and first.dataset.name == spec.name and own:
        spec = replace(spec, args={**getattr(train, "shared", {}), **spec.args})
    return make(spec)


def _loader(
    split: str, wanted: LoaderPlan, plan: Plan, device: torch.device, shard: tuple[int, int], train: Any = None
) -> Loader:
    """Build the loader of one split. ``train`` is the training dataset, if it was built before."""
    training = plan.train
    with placed(wanted.dataset.at):
        dataset = make_dataset(plan, wanted.dataset, train)
    usual = split == "train" and wanted.sampler is None and not is_stream(dataset)
    shuffle = usual if wanted.shuffle is None else wanted.shuffle
    return Loader(
        dataset,
        batch_size=wanted.batch_size,
        shuffle=shuffle and training.overfit is None,
        drop_last=wanted.drop_last,
        workers=wanted.workers,
        sampler=make(wanted.sampler, dataset) if wanted.sampler else None,
        collate=_collate(wanted.collate) if wanted.collate else None,
        seed=training.seed,
        on_bad_sample=wanted.on_bad_sample,
        bad_samples=wanted.bad_samples,
        device=None if device.type == "cpu" else device,
        shard=shard,
        limit=None if split == "train" else training.limit_batches,
        at=str(wanted.at),
        **wanted.options,
    )


def _collate(spec: Spec) -> Callable[[list[Any]], Any]:
    """Return the collate function: a plain function of the samples, or an object of a class."""
    found = KINDS["collate function"].get(spec.name, at=str(spec.at))
    return make(spec) if isinstance(found, type) else partial(found, **spec.args)


def _losses(specs: Sequence[Spec], device: torch.device) -> dict[str, Callable[..., torch.Tensor]]:
    """Return the losses by name; the second of a name is recorded as ``name#2``."""
    losses: dict[str, Callable[..., torch.Tensor]] = {}
    for spec in specs:
        name = spec.name.rpartition(".")[2]
        count = 1 + sum(known.partition("#")[0] == name for known in losses)
        losses[name if count == 1 else f"{name}#{count}"] = _loss(spec, device)
    return losses


def _loss(spec: Spec, device: torch.device) -> Callable[..., torch.Tensor]:
    """Return a callable of output and target: a module, or a plain function of the two."""
    found = KINDS["loss"].get(spec.name, at=str(spec.at))
    if not isinstance(found, type) and _takes_two(found):
        return fitted(partial(found, **spec.args))
    made = make(spec)
    return fitted(made.to(device) if isinstance(made, torch.nn.Module) else made)


def _takes_two(function: Callable[..., Any]) -> bool:
    first = list(inspect.signature(function).parameters.values())[:2]
    return len(first) == 2 and all(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in first)


def settings_of_step(plan: Plan, clip: Sequence[Any], device: torch.device) -> dict[str, Any]:
    """Return what a step is made with beside the forward pass and the optimizers."""
    training = plan.train
    return {
        "accumulate": training.accumulate,
        "clip": clip,
        "precision": training.precision,
        "nonfinite": training.nonfinite,
        "nonfinite_limit": training.nonfinite_limit,
        "device": device,
    }


def clippings(plan: Plan, mesh: Mesh, made: Sequence[Any] | None = None) -> list[Any]:
    """Return the clippings of the run, whose optimizers are clipped together; ``made`` are those that exist."""
    several = [optimizer.clip for optimizer in plan.optimizers.values()]
    at = next((str(spec.at) for clip in several for spec in clip), "")
    if len({str([(spec.name, spec.args) for spec in clip]) for clip in several}) > 1:
        raise ConfigError("the optimizers of a run are clipped together", at=at, hint="give all the same clipping")
    specs = several[0] if several else ()
    clip = [make(spec) for spec in specs] if made is None else list(made)
    if text := describe_wrong(clip, mesh.sizes):
        raise ConfigError(text, at=at, hint="write clip: {type: Norm, max: 1.0}")
    return clip


def _update(
    plan: Plan, forward: Forward, optimizers: Mapping[str, Any], mesh: Mesh, device: torch.device
) -> tuple[Step, Any]:
    """Return the native step, and the update that the plan names: that step itself, or one that may use it."""
    known = settings_of_step(plan, clippings(plan, mesh), device)
    if plan.update.name == "Step":
        kind = step_of(forward)
        with placed(list(plan.optimizers.values())[-1].spec.at):
            step = (
                make(plan.update, forward, optimizers, **known) if kind is Step else kind(forward, optimizers, **known)
            )
        return step, step
    with placed(list(plan.optimizers.values())[-1].spec.at):
        step = Step(forward, optimizers, **known)
    found = KINDS["update"].get(plan.update.name, at=str(plan.update.at))
    uses = "step" in inspect.signature(found).parameters
    if group.is_joined() and not uses:
        raise ConfigError(
            f"the update {plan.update.name} steps the optimizers itself, and so each process would learn apart",
            at=str(plan.update.at),
            hint="let it take `step` and call step.learn(run, loss)",
        )
    return step, make(plan.update, forward, optimizers, **({"step": step} if uses else {}))


def _loop(spec: Spec) -> Callable[[Run], None]:
    """Return the loop: a function of the run, or an object of a class."""
    found = KINDS["loop"].get(spec.name, at=str(spec.at))
    return make(spec) if isinstance(found, type) or spec.args else found


def _metrics(plan: Plan, device: torch.device) -> dict[str, Any]:
    made = [require_metric(make(spec), at=str(spec.at)) for spec in plan.metrics]
    with placed(plan.metrics[-1].at if plan.metrics else ""):
        named = by_name(made)
    return {name: m.to(device) if isinstance(m, torch.nn.Module) else m for name, m in named.items()}


def _hook(plan: HookPlan, run: Run) -> Hook:
    hook = make_hook(plan)
    attach = getattr(hook, "attach", None)
    if attach is not None:
        with placed(plan.spec.at):
            attach(run)
    return hook


def make_hook(plan: HookPlan) -> Hook:
    """Return the hook that a plan names, with its priority and its interval."""
    factory = KINDS["hook"].get(plan.spec.name, at=str(plan.spec.at))
    if isinstance(factory, type) and issubclass(factory, Hook):
        hook = make(plan.spec)
    elif callable(factory) and not isinstance(factory, type):
        args = dict(plan.spec.args)
        hook = FunctionHook(factory, args.pop("point", "after_step"))
    else:
        raise ConfigError(f"{plan.spec.name} is not a hook", at=str(plan.spec.at), hint="derive it from etude.Hook")
    hook.priority, hook.essential = plan.priority, plan.essential
    if plan.every is not None:
        hook.every = plan.every
    require_points(hook, at=str(plan.spec.at))
    return hook  # type: ignore[no-any-return]


def _filled(spec: Spec) -> Spec:
    owner = spec.name.partition(".")[0] if "." in spec.name else ""
    return Spec(kind=spec.kind, name=spec.name, args={k: _fill(v, owner) for k, v in spec.args.items()}, at=spec.at)


def _fill(value: Any, owner: str = "") -> Any:
    if isinstance(value, Spec):
        return _of_package(value) if owner and value.name.startswith(f"{owner}.") else make(value)
    if isinstance(value, Mapping):
        return {key: _fill(item, owner) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_fill(item, owner) for item in value)
    return value


def _of_package(spec: Spec) -> Any:
    """Return an argument that is a class of the component's own package, such as a config of transformers."""
    found = walk(spec.name)
    if not isinstance(found, type):
        raise ConfigError(f"there is no class {spec.name!r}", at=str(spec.at))
    return Registry("object").build(Spec(kind="", name=spec.name, args=_filled(spec).args, at=spec.at))


def length_of_epoch(loader: Any, training: Training) -> int | None:
    """Return the steps of an epoch: those of the data, or fewer if the run is limited; None for a stream."""
    limit = training.overfit or training.limit_batches
    try:
        length = len(loader)
    except TypeError:
        return limit
    return min(length, limit) if limit else length


def overfit(run: Run, training: Training) -> None:
    """Let the run train on the same few batches (``--overfit``), for as many steps as the whole data would give."""
    length = len(run.data["train"])  # type: ignore[arg-type]
    run.total_steps = training.steps or (training.epochs or 1) * length
    run.max_epochs, run.loop = None, KINDS["loop"].get("steps")


def length_of_run(training: Training, steps_per_epoch: int | None) -> int | None:
    """Return the steps of a run; None if they are not known."""
    if training.steps is not None:
        return training.steps
    if training.epochs is None or steps_per_epoch is None:
        return None
    return training.epochs * steps_per_epoch


def _file(plan: Plan) -> str:
    return plan.files[0] if plan.files else ""


def _guarded(plan: Plan, entry: str, load: Callable[[], Any]) -> Any:
    """Import code of the user. A mistake in it is reported with its own place, without Étude's traceback."""
    try:
        return load()
    except EtudeError:
        raise
    except ModuleNotFoundError as error:
        if error.name == entry.split(".")[0] or error.name == entry:
            raise ConfigError(f"imports: no module {entry!r}", at=_file(plan)) from error
        raise UserCodeError(f"imports: {entry} raised {type(error).__name__}: {error}") from error
    except Exception as error:
        raise UserCodeError(f"imports: {entry} raised {type(error).__name__}: {error}") from error
