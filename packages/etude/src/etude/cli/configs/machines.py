"""Lines of ``etude plan`` about processes and machines: what each holds, and how often to save."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from etude.cli.flags import seconds
from etude.errors import UserError
from etude.units import counted

if TYPE_CHECKING:
    from etude.plan import Plan


def for_processes(plan: Plan, count: int) -> Plan:
    """Return the plan as ``count`` processes would train it."""
    from etude.building.ranks import for_world
    from etude.dist.world import World

    return for_world(plan, World(size=count))


def of_processes(asked: Plan, plan: Plan, count: int) -> list[str]:
    """Return the global batch size and that of each process, if there are several or the config mentions them."""
    from etude.dist.world import World

    train = plan.data.get("train")
    if train is None or (count == 1 and asked.data["train"].batch_size_per_rank is None):
        return []
    strategy = (
        plan.parallel.strategy if plan.parallel.strategy != "auto" else "ddp" if World(size=count).is_many else "none"
    )
    shares = max(1, count // plan.parallel.together)
    if train.batch_size < shares:
        return [f"{'processes':<10} {count}: a batch of {train.batch_size} cannot be shared among so many"]
    each = -(-train.batch_size // shares)
    exact = "each" if train.batch_size % shares == 0 else "each at most"
    return [f"{'processes':<10} {count} ({strategy}): batches of {train.batch_size} in all, {each} {exact}"]


def of_mesh(plan: Plan, model: Any, count: int) -> list[str]:
    """Draw what each process holds of a model that is split."""
    from etude.dist.layout.held import drawn

    if not plan.parallel.is_split or count == 1:
        parts = plan.parallel.together
        return [f"{'mesh':<10} split over {parts} processes: see --nproc {parts}"] if plan.parallel.is_split else []
    return drawn(model, plan.parallel, count, local=count)


def of_failures(args: argparse.Namespace) -> list[str]:
    """Print how often to save when machines fail, and the share of time left for training that counts."""
    from etude.dist.jobs.goodput import goodput, interval

    if args.mtbf and args.node_mtbf:
        raise UserError("--mtbf is of the whole job, --node-mtbf of one machine: give one of them")
    if not (args.mtbf or args.node_mtbf):
        return []
    mtbf = seconds("--mtbf", args.mtbf) if args.mtbf else seconds("--node-mtbf", args.node_mtbf) / args.nodes
    save, restart = seconds("--save-time", args.save_time), seconds("--restart-time", args.restart_time)
    every = interval(save, mtbf)
    share = goodput(every, save=save, restart=restart, mtbf=mtbf)
    return [
        f"{'failures':<10} one every {_time(mtbf)} on {counted(args.nodes, 'machine')}; "
        f"a save takes {_time(save)}, a restart {_time(restart)}",
        f"{'interval':<10} save every {_time(every)}, by Young and Daly: checkpoint.every: {every:.0f}s",
        f"{'goodput':<10} {share:.1%} of the time is training that counts",
    ]


def _time(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def layers_of(built: Any) -> list[str]:
    """Return the model's layers; with shapes where the first batch can be had and passes through."""
    from etude.models.summary import summary

    try:
        batch = next(iter(built.data["train"]))
        inputs, _ = built.update.forward.split(batch)
        found = summary(built.model, inputs)
    except Exception:  # what is wrong with data or model is said when training starts
        found = summary(built.model)
    lines = str(found).splitlines()
    if len(lines) > _MOST_LAYERS + 2:
        lines = [*lines[:_MOST_LAYERS], f"… {len(lines) - _MOST_LAYERS - 1} more layers", lines[-1]]
    return [f"{'' if index else 'layers':<10} {line}" for index, line in enumerate(lines)]


_MOST_LAYERS = 30
