"""Puts a script's model and optimizers where they train: on a device, and on the mesh of all processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from etude.building.components import build_component
from etude.building.device import fix_threads, pick_device, seed_everything, set_computing
from etude.building.ranks import compare_ranks, join_ranks, peers_of, wrap_for
from etude.building.update import clippings, forward_of, settings_of_step, step_of
from etude.config.tree import Tree
from etude.core.hook import Hook
from etude.core.predict import predict
from etude.core.run import Run
from etude.data.seeds import seed_rank
from etude.dialects.native.lower import lower_parallel
from etude.dist.layout.wrap import mesh_of, whole_losses
from etude.dist.world import World
from etude.errors import ConfigError
from etude.hooks.ema import Ema
from etude.losses.outputs import fitted
from etude.plan import Parallel, Plan
from etude.script.arguments import own_update, require_parameters


class Placement:
    """The model, its optimizers and what updates them, made ready for this process.

    ``plan`` has the settings of the trainer; ``clip`` what it was given as clippings, objects or words of a config.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: dict[str, torch.optim.Optimizer],
        plan: Plan,
        *,
        loss: Callable[..., torch.Tensor] | None,
        update: Callable[..., Any] | None,
        clip: Sequence[Any],
        parallel: str | Mapping[str, Any] | Parallel,
    ) -> None:
        self.world = World.from_environment()
        self.device = pick_device(plan.train.device, self.world)
        self.parallel = parallel_of(parallel)
        for text, hint in self.parallel.refusals(
            precision=plan.train.precision, own_update=update is not None, losses=loss is not None
        ):
            raise ConfigError(f"Trainer: {text}", hint=hint.replace("write loss: …", "pass loss=…"))
        self.mesh = mesh_of(self.parallel, self.world)
        join_ranks(self.world, self.device)
        self.model, self.optimizers = model.to(self.device), optimizers
        require_parameters(self.model, optimizers)
        if self.parallel.fault_tolerant:
            raise ConfigError("parallel.fault_tolerant works with `etude train` and a config, not with Trainer")
        # Before the step is made: sharding puts other parameters into the optimizers' groups.
        self._wrapped = wrap_for(
            self.model, optimizers, self.parallel, self.mesh, self.device, by_hand=update is not None
        )
        losses = whole_losses({"loss": fitted(loss)} if loss is not None else {}, self.mesh)
        # Ranks evaluate different numbers of batches. DDP would wait for the others in each, so `plain` bypasses it.
        forward, self.plain = forward_of(self._wrapped, losses), forward_of(self._wrapped, losses, self.model)
        settings = settings_of_step(plan, self._clippings(plan, clip), self.device)
        self.step = step_of(forward, self.mesh, plan.train.seed)(forward, optimizers, **settings)
        self.update = self.step if update is None else own_update(update, self.step)

    def _clippings(self, plan: Plan, given: Sequence[Any]) -> list[Any]:
        """Return the clippings: objects of the script as they are, and what it says in words of a config."""
        specs = next(iter(plan.optimizers.values())).clip  # all have the same
        short = [build_component(spec) for spec in specs[: len(specs) - len(given)]]
        pairs = zip(given, specs[len(short) :], strict=True)
        own = [build_component(spec) if isinstance(one, str | Mapping) else one for one, spec in pairs]
        return clippings(plan, self.mesh, [*short, *own])

    def prepare(self, plan: Plan, *, seeded: bool) -> None:
        """Seed the generators if a seed was given, and set how torch computes."""
        if seeded:
            seed_everything(plan.train)
        else:
            set_computing(plan.train)
        fix_threads(plan.train, self.parallel)

    def peers(self) -> Any:
        """Return the other processes; None if there are none."""
        return peers_of(self.world, self.mesh, self._wrapped, self.optimizers, self.parallel)

    def predict(self, run: Run, loader: Any, hooks: Sequence[Hook]) -> Any:
        """Return the model's outputs for all samples, with the weights that an evaluation measures."""
        averages = [hook for hook in hooks if isinstance(hook, Ema)]
        for average in averages:
            average.before_eval(run)
        try:
            return predict(self.plain, loader, device=self.device, autocast=self.step.autocast)
        finally:
            for average in averages:
                average.after_eval(run)

    def start_together(self, run: Run, seed: int) -> None:
        """Compare the ranks, and let each draw its own random numbers from here on."""
        if run.peers is not None:
            compare_ranks(run, {})
            seed_rank(seed, self.mesh.stream)


def parallel_of(given: str | Mapping[str, Any] | Parallel) -> Parallel:
    """Return the settings for several processes from what a script passes: a strategy, or a mapping as in a config."""

    if isinstance(given, Parallel):
        return given
    return lower_parallel(Tree({"parallel": {"strategy": given} if isinstance(given, str) else dict(given)}))
