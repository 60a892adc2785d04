"""Builds what happens with a batch: the forward pass, its compilation, clippings, and the update."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from etude.building.components import KINDS, build_component
from etude.core.cut import CutForward
from etude.core.evaluation import Evaluation
from etude.core.forward import Forward
from etude.core.hook import require_call
from etude.core.pipelined import PipelinedForward, PipelinedStep
from etude.core.update import Step
from etude.core.virtual import VirtualEvaluation, VirtualStep
from etude.dist import group
from etude.dist.layout.mesh import Mesh
from etude.dist.layout.wrap import Wrapped
from etude.errors import ConfigError, placed
from etude.models.compile import compiled_loss
from etude.optim.clipping import describe_wrong
from etude.plan import Plan, Training


def forward_of(wrapped: Wrapped, losses: dict[str, Callable[..., torch.Tensor]], called: Any = None) -> Forward:
    """Return what calls the wrapped model, or ``called`` in its place, and computes its losses."""
    if wrapped.pipe is not None:
        return PipelinedForward(wrapped.pipe, losses, wrapped.model)
    called = wrapped.called if called is None else called
    return Forward(called, losses) if wrapped.context is None else CutForward(wrapped.context, losses, called)


def step_of(forward: Forward, mesh: Mesh, seed: int) -> Callable[..., Step]:
    """Return what makes the step that such a forward pass needs, on such a mesh."""
    if mesh.virtual:
        return partial(VirtualStep, mesh=mesh, seed=seed)
    return PipelinedStep if isinstance(forward, PipelinedForward) else Step


def evaluation_of(mesh: Mesh) -> type[Evaluation]:
    """Return the kind of evaluation that gives the results of all ranks of such a mesh."""
    return VirtualEvaluation if mesh.virtual else Evaluation


def compile_options(training: Training) -> Mapping[str, Any]:
    return training.compile if isinstance(training.compile, Mapping) else {}


def compiled_forward(forward: Forward, words: Mapping[str, Any]) -> Forward:
    """Compile model and losses with their backward passes. Optimizers have kernels that are fused already."""
    losses = {name: compiled_loss(loss, words) for name, loss in forward.losses.items()}
    return Forward(torch.compile(forward.model, **words), losses)  # type: ignore[arg-type]


def settings_of_step(plan: Plan, clip: Sequence[Any], device: torch.device) -> dict[str, Any]:
    """Return what a step is made with, apart from the forward pass and the optimizers."""
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
    clip = [build_component(spec) for spec in specs] if made is None else list(made)
    if text := describe_wrong(clip, mesh.sizes):
        raise ConfigError(text, at=at, hint="write clip: {type: Norm, max: 1.0}")
    return clip


def build_update(
    plan: Plan, forward: Forward, optimizers: Mapping[str, Any], mesh: Mesh, device: torch.device
) -> tuple[Step, Any]:
    """Return the native step, and the update that the plan names: that step itself, or one that may use it."""
    known = settings_of_step(plan, clippings(plan, mesh), device)
    if plan.update.name == "Step":
        kind = step_of(forward, mesh, plan.train.seed)
        with placed(list(plan.optimizers.values())[-1].spec.at):
            if kind is not Step:
                return (step := kind(forward, optimizers, **known)), step
            step = build_component(plan.update, forward, optimizers, **known)
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
    update = build_component(plan.update, forward, optimizers, **({"step": step} if uses else {}))
    require_call(update, "update", "run", "batch", at=str(plan.update.at))
    return step, update
