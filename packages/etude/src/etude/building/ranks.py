"""Makes a run one of several processes: joins them, wraps the model for them, and compares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from etude.checkpoint.plan_changes import facts
from etude.core.hook import FunctionHook
from etude.core.run import Run
from etude.data.loader import Loader
from etude.data.seeds import seed_rank
from etude.dist import group, same_code
from etude.dist.jobs import reports
from etude.dist.layout.mesh import Mesh
from etude.dist.layout.pipeline import numbered
from etude.dist.layout.wrap import Wrapped, require_fitting, strategy_of, wrap
from etude.dist.peers import Peers, mean_over_ranks
from etude.dist.torchft import Place, Replicas
from etude.dist.world import World
from etude.errors import ConfigError
from etude.events.record import is_timing
from etude.fast_dataclass import replace
from etude.optim.factory import without_fused
from etude.plan import Parallel, Plan


def require_even_parts(plan: Plan, mesh: Mesh, loader: Any) -> None:
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


def peers_of_plan(
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


def start_together(run: Run, plan: Plan, place: Place | None) -> None:
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


def replica_of(parallel: Parallel, world: World) -> Place | None:
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
    """Return the number of samples and the fingerprint of a loader's data, where it knows them."""
    state = loader.state_dict() if isinstance(loader, Loader) else {}
    return " ".join(f"{key} {state[key]}" for key in ("samples", "fingerprint") if state.get(key) is not None)
