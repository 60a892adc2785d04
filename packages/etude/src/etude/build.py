"""Builds a Run from a Plan: model, data, optimizers, schedules, hooks, each after what it depends on.

:func:`assemble` builds what a plan names; :func:`connect` makes a run of the parts, those of a plan and those that a
script passes to :class:`~etude.Trainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch

from etude import dialects, registry
from etude.building.components import (
    build_attached_hook,
    build_component,
    build_loop,
    build_losses,
    build_metrics,
    import_modules,
)
from etude.building.data import build_loaders, length_of_epoch, length_of_run, overfit
from etude.building.device import fix_threads, pick_device, seed_everything
from etude.building.options import Options
from etude.building.ranks import (
    for_world,
    join_ranks,
    peers_of_plan,
    replica_of,
    require_even_parts,
    start_together,
    wrap_for,
)
from etude.building.update import build_update, compile_options, compiled_forward, evaluation_of, forward_of
from etude.core.evaluation import Evaluation
from etude.core.hook import Hook, HookTable
from etude.core.run import Run
from etude.core.update import Step
from etude.dist.layout.mesh import Mesh
from etude.dist.layout.wrap import Wrapped, mesh_of, whole_losses, wrap
from etude.dist.world import World
from etude.errors import ConfigError
from etude.hooks.upkeep import Compiled
from etude.models.compile import can_compile, channels_last, recompute
from etude.optim.factory import build_optimizer
from etude.plan import Plan, Training


def build(plan: Plan, options: Options | None = None) -> Run:
    """Build and connect everything that the plan names. Nothing is written and nothing trained."""
    options = options or Options()
    registry.load_builtins()
    return dialects.of(plan).build(plan, options, assemble)


def assemble(plan: Plan, options: Options) -> Run:
    """Build the run of a native plan: model, data, optimizers, hooks, each after what it depends on."""
    world = World.from_environment()
    place = replica_of(plan.parallel, world)
    plan = for_world(plan, world if place is None else World(place.number, place.count))
    import_modules(plan)
    seed_everything(plan.train)
    fix_threads(plan.train, plan.parallel)
    device = pick_device(plan.train.device, world)
    mesh = mesh_of(plan.parallel, world)
    join_ranks(world, device)
    model = _model(plan, device)
    data = build_loaders(plan, device, mesh, mesh.share if place is None else place.share)
    require_even_parts(plan, mesh, data["train"])
    wrapped, optimizers = _wrapped(plan, model, mesh, device)
    losses = whole_losses(build_losses(plan.losses, device), mesh)
    forward = forward_of(wrapped, losses)
    compiles = bool(plan.train.compile) and can_compile(compile_options(plan.train), device)
    if compiles:
        forward = compiled_forward(forward, compile_options(plan.train))
    step, update = build_update(plan, forward, optimizers, mesh, device)
    peers = peers_of_plan(plan, world, mesh, place, wrapped, optimizers)
    # DDP sends buffers around at every call; an evaluation calls the module itself.
    seen = forward if peers is None else forward_of(wrapped, losses, model)
    evaluation = evaluation_of(mesh)(
        seen, build_metrics(plan, device), autocast=getattr(update, "autocast", step.autocast)
    )
    run = connect(
        plan.train,
        Parts(model, data, optimizers, update, step, build_loop(plan.loop), evaluation),
        world=world,
        mesh=mesh,
        peers=peers,
        plan=plan,
        ledger=plan.ledger,
    )
    for hook_plan in plan.hooks:
        run.hooks.add(build_attached_hook(hook_plan, run))
    if compiles:
        run.hooks.add(Compiled(losses=len(losses)))
    start_together(run, plan, place)
    return run


@dataclass
class Parts:
    """What a run consists of, whether a plan has named it or a script has made it."""

    model: torch.nn.Module
    data: dict[str, Any]
    optimizers: dict[str, torch.optim.Optimizer]
    update: Any
    #: The engine's own step; the update may be another one that uses it.
    step: Step
    loop: Callable[[Run], None]
    evaluation: Evaluation
    hooks: Sequence[Hook] = ()
    #: Objects of a script that belong into checkpoints.
    others: Mapping[str, Any] = field(default_factory=dict)


def connect(training: Training, parts: Parts, *, peers: Any = None, **known: Any) -> Run:
    """Connect the parts of a run. Runs of a plan and those of :class:`~etude.Trainer` are both made here."""
    length = length_of_epoch(parts.data["train"], training)
    clock = monotonic if peers is None else peers.clock
    run = Run(
        model=parts.model,
        update=parts.update,
        loop=parts.loop,
        hooks=HookTable(parts.hooks, steps_per_epoch=length, clock=clock),
        data=parts.data,
        optimizers=parts.optimizers,
        evaluation=parts.evaluation,
        peers=peers,
        clock=clock,
        steps_per_epoch=length,
        max_epochs=training.epochs,
        total_steps=length_of_run(training, length),
        **known,
    )
    # An update that is not the step may use it, and then the scale and the skipped steps are state too.
    run.extra_parts |= {**parts.others, **({"step": parts.step} if parts.update is not parts.step else {})}
    if training.overfit is not None:
        overfit(run, training)
    return run


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


def _model(plan: Plan, device: torch.device) -> torch.nn.Module:
    made = build_component(plan.model)
    if not isinstance(made, torch.nn.Module):
        hint = "derive its class from torch.nn.Module"
        raise ConfigError(
            f"model {plan.model.name} is a {type(made).__name__}, no module", at=str(plan.model.at), hint=hint
        )
    model = made.to(device)
    if plan.train.gradient_checkpointing:
        at = plan.places.get(("train", "gradient_checkpointing"), "")
        recompute(model, plan.train.gradient_checkpointing, at=str(at))
    if plan.train.channels_last:
        channels_last(model)
    return model
