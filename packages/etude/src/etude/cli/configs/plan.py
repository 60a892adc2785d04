"""Show what a run will do. Builds the model and the data; trains and writes nothing."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etude.cli.flags import add_cfg_options, add_config, add_dialect, add_no_code, positive
from etude.errors import ConfigError, printable
from etude.inspection.points import POINTS
from etude.preview.long_run import Done
from etude.units import counted, human

if TYPE_CHECKING:
    from etude.dialects.rehearsal import Record
    from etude.plan import Plan
    from etude.preview.explain import Act, Facts, GroupFact
    from etude.preview.long_run import LongRun
from etude.cli.configs.curves import Curves, abridged, curves_of, print_curves, shown_as
from etude.cli.configs.machines import for_processes, layers_of, of_failures, of_mesh, of_processes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_cfg_options(parser)
    parser.add_argument(
        "--plot",
        metavar="FILE",
        nargs="?",
        const="",
        help="draw the curves of all groups into FILE (.svg, or with matplotlib .png and .pdf; default: NAME.svg)",
    )
    parser.add_argument("--acts", action="store_true", help="print every call of every hook, one per line")
    add_dialect(parser)
    add_no_code(parser)
    memory = parser.add_argument_group("memory")
    memory.add_argument("--memory", action="store_true", help="predict the peak memory of a rank, without a step")
    memory.add_argument("--limit", metavar="16GB", help="with --memory: find the largest batch that fits")
    many = parser.add_argument_group("several processes")
    many.add_argument("--nproc", type=positive, default=1, metavar="N", help="processes per machine")
    many.add_argument("--nodes", "--nnodes", type=positive, default=1, metavar="N", help="number of machines")
    many.add_argument("--mtbf", metavar="4h", help="mean time between failures of the job; prints how often to save")
    many.add_argument("--node-mtbf", metavar="90d", help="mean time between failures of one machine")
    many.add_argument("--save-time", default="30s", metavar="30s", help="time of one save (default 30s)")
    many.add_argument(
        "--restart-time", default="5min", metavar="5min", help="time from a failure to the next step (default 5min)"
    )


def run(args: argparse.Namespace) -> int:
    from etude import compat, dialects
    from etude.api import load_plan, require_sound
    from etude.config.dump import hide_secrets_of

    compat.install()
    plan, tree = load_plan(args.config, [*args.overrides, *args.cfg_options], dialect=args.dialect, options=vars(args))
    plan = require_sound(plan)
    count = args.nproc * args.nodes
    if args.memory or args.limit:
        print("\n".join(_memory(plan, count, args)))
        return 0
    driven = dialects.of(plan).drives_itself
    story = _rehearsed(plan, keep_acts=args.acts) if driven else _predicted(plan, count)
    story.blocks[1:1] = [lines for lines in (of_failures(args),) if lines]
    if args.acts:
        for act in story.acts:
            print(f"epoch {act.epoch}  step {act.step}  {act.point:<16} {act.who}")
    else:
        for block in story.blocks:
            print("\n".join(printable(hide_secrets_of(tree, line)) for line in block) + "\n")
        print_curves(story.curves)
        for note in story.notes:
            print(f"note       {printable(note)}")
    if args.plot is not None:
        from etude.preview.draw import save_plot

        target = args.plot or f"{plan.name}.svg"
        save_plot(story.curves, target, title=plan.name)
        print(f"drawn into {target}")
    return 0


def _memory(plan: Plan, count: int, args: argparse.Namespace) -> list[str]:
    """Return the predicted memory of a rank, and the largest batch that fits."""
    from etude.session.memory_plan import Planner
    from etude.sweep.fit_batch import parse_bytes, shown

    if args.limit and not args.memory:
        raise ConfigError("--limit is a limit of --memory", hint="write --memory --limit 16GB")
    limit = parse_bytes(args.limit) if args.limit else None
    if limit is not None and limit <= 0:
        raise ConfigError(f"--limit is {args.limit}: nothing fits into that", hint="write --limit 16GB")
    planner = Planner(plan, count)
    found = planner.estimate()
    on_cpu = planner.on_cpu
    ranks = f", {planner.strategy} over {count} processes" if count > 1 else ""
    rows = [(f"batch {found.batch_size}{ranks}", found.tensors, "the tensors of a rank at its peak")]
    rows += [
        ("model", found.model, "parameters, buffers, averages"),
        ("gradients", found.gradients, ""),
        ("optimizer", found.optimizer, "its state"),
        ("activations", found.activations, "with inputs and temporary values"),
        ("exchange", found.exchange, "buckets of ddp"),
        ("save", found.save, "a copy in host memory"),
        ("workers", found.workers, "batches in shared memory"),
        ("process", found.whole, "the whole process, without its workers" if on_cpu else ""),
    ]
    lines = [
        f"{'' if index else 'memory':<10} {name:<28} {shown(size):>9}  {words}".rstrip()
        for index, (name, size, words) in enumerate(rows)
        if size and (on_cpu or name != "process")
    ]
    if limit is None:
        return lines
    best = planner.largest(limit, of_process=on_cpu)
    what = "process" if on_cpu else "tensors"
    if best is None:
        least = planner.estimate(planner.mesh.share[1])
        raise ConfigError(f"not even the smallest batch fits into {shown(limit)}: it needs {shown(least.whole)}")
    size = best.whole if on_cpu else best.tensors
    return [*lines, f"{'largest':<10} a batch of {best.batch_size} fits into {shown(limit)}: {what} {shown(size)}"]


@dataclass
class Preview:
    """Holds what `etude plan` prints about a run."""

    blocks: list[list[str]]
    curves: Curves
    acts: Iterable[Act]
    notes: Sequence[str] = ()


def _predicted(plan: Plan, count: int = 1) -> Preview:
    """Predict a native run from its plan; only lengths and groups come from the built run."""
    from etude.build import build
    from etude.fast_dataclass import replace
    from etude.plan import Parallel
    from etude.preview.explain import story
    from etude.preview.long_run import LongRun
    from etude.session.lengths import facts_of

    asked, plan = plan, for_processes(plan, count)
    # Built whole, in this one process, which then says what each of the others would hold.
    built = build(replace(plan, parallel=Parallel(strategy=plan.parallel.strategy, at=plan.parallel.at)))
    facts = facts_of(built)
    is_known = bool(facts.steps_per_epoch) and (facts.total_steps is not None or plan.train.epochs is not None)
    acts = story(plan, facts) if is_known else ()
    blocks = [
        [*_length(plan, facts), *of_processes(asked, plan, count), *of_mesh(plan, built.model, count)],
        layers_of(built),
        _groups(facts),
        _hooks(facts),
        _times(LongRun(plan, facts) if is_known else None, facts),
        _disk(LongRun(plan, facts) if is_known else None, plan, facts),
    ]
    waits = getattr(built.update, "waits", "")
    notes = [f"every step waits for the device to read its loss: {waits}"] if waits else []
    return Preview(blocks, curves_of(plan, facts), acts, notes)


def _rehearsed(plan: Plan, *, keep_acts: bool) -> Preview:
    """Rehearse a run that drives itself, in a temporary folder."""
    import tempfile
    from pathlib import Path

    from etude import dialects
    from etude.api import explained
    from etude.build import build
    from etude.building.options import Options
    from etude.dialects.rehearsal import rehearse
    from etude.session.lengths import facts_of

    with tempfile.TemporaryDirectory(prefix="etude-plan-") as folder, explained(plan):
        built = build(plan, Options(folder=Path(folder), quiet=True))
        dialects.of(plan).prepare(built)
        facts = facts_of(built)
        record = rehearse(built, keep_acts=keep_acts)
    blocks = [
        _length(plan, facts), _groups(facts), _called(record, facts), _done(record), _kept(record, facts),
    ]  # fmt: skip
    return Preview(blocks, _driven(record, facts), record.acts, record.notes)


def _called(record: Record, facts: Facts) -> list[str]:
    """List who is called at each point, in order, and how often."""
    priority = {actor.name: actor.priority for actor in facts.actors}
    shown: dict[str, list[str]] = {}
    for (point, who), count in record.calls.items():
        first = f"{priority[who]}, " if who in priority else ""
        shown.setdefault(point, []).append(f"{who} ({first}{_often(count)})")
    return ["hooks      at each point, in the order they are called: name (priority, how often)", *_by_point(shown)]


def _by_point(shown: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"           {point:<16} {', '.join(shown[point])}" for point in POINTS if point in shown]


def _done(record: Record) -> list[str]:
    lines = ["times      after which steps"]
    for what, numbers in record.done.items():
        lines.append(f"           {what:<16} {abridged(numbers)}  ({_often(len(numbers))})")
    if not record.done:
        lines.append("           no evaluation, no save, no log line")
    return lines


def _kept(record: Record, facts: Facts) -> list[str]:
    if not record.saves:
        return ["disk       no checkpoints are planned"]
    kept = record.kept
    lines = _room(len(kept) + len(record.perhaps), facts)
    perhaps = f", perhaps {' '.join(record.perhaps)}" if record.perhaps else ""
    return [*lines, f"           {abridged(kept)}{perhaps}"]


def _driven(record: Record, facts: Facts) -> Curves:
    """Return learning rate and momentum of every group, and everything else that changes."""
    numbered: Counter[str] = Counter()
    groups: dict[tuple[str, str], GroupFact] = {}
    for fact in facts.groups:
        groups[fact.optimizer, str(numbered[fact.optimizer])] = fact
        numbered[fact.optimizer] += 1
    curves: Curves = {}
    for (optimizer, index, target), points in record.values.items():
        if target in ("lr", "momentum") or len({value for _, value in points}) > 1:
            group = groups.get((optimizer, index))
            name = index if group is None else group.name
            name = " ".join(filter(None, [shown_as(target, group), optimizer, name]))
            curves[name] = [(float(step), value) for step, value in points]
    return curves


def _length(plan: Plan, facts: Facts) -> list[str]:
    train = plan.data.get("train")
    batch = f" of {train.batch_size}" if train else ""
    epochs = f"{plan.train.epochs} epochs, " if plan.train.epochs else ""
    per_epoch = (
        f"batches{batch}{'' if epochs else ', no epochs'}"
        if facts.steps_per_epoch is None
        else f"{facts.steps_per_epoch} batches{batch} per epoch"
    )
    updates = -(-facts.total_steps // plan.train.accumulate) if facts.total_steps else None
    rows = [
        ("run", f"{plan.name} ({plan.dialect})"),
        ("model", plan.model.name),
        ("length", f"{_or(facts.total_steps)} steps, {epochs}{per_epoch}"),
        (
            "updates",
            f"{_or(updates)}" + (f" (every {plan.train.accumulate} steps)" if plan.train.accumulate > 1 else ""),
        ),
        ("precision", plan.train.precision),
    ]
    return [f"{name:<10} {value}" for name, value in rows]


def _groups(facts: Facts) -> list[str]:
    lines = ["groups     optimizer    name                 tensors parameters  values"]
    for group in facts.groups:
        shown = ("lr", "weight_decay", "momentum", "beta2")
        values = "  ".join(f"{shown_as(key, group)} {group.values[key]:g}" for key in shown if key in group.values)
        name = group.name if len(group.name) <= 20 else group.name[:19] + "…"
        lines.append(
            f"           {group.optimizer or '-':<12} {name:<20} {group.tensors:>7} {group.numbers:>10,}  {values}"
        )
    return [*lines, *(f"           frozen: {text}" for text in facts.frozen)]


def _hooks(facts: Facts) -> list[str]:
    shown: dict[str, list[str]] = {}
    for actor in sorted(facts.actors, key=lambda actor: actor.priority):
        for point in actor.points:
            every = f", every {actor.every}" if actor.every else ""
            shown.setdefault(point, []).append(f"{actor.name} ({actor.priority}{every})")
    return ["hooks      at each point, in the order they act: name (priority, how often)", *_by_point(shown)]


def _times(run: LongRun | None, facts: Facts) -> list[str]:
    lines = ["times      after which steps"]
    for actor in facts.actors:
        if actor.acting:
            done = run.done_at(actor) if run is not None else Done((), (), 0)
            lines.append(f"           {actor.name:<16} {_ends(done)}  ({done.count} times)")
    counts = run.calls() if run is not None else {}
    lines.append(f"           in all {sum(counts.values())} calls of hooks at {len(counts)} points")
    return lines


def _ends(done: Done) -> str:
    if done.count <= len(done.first):
        return " ".join(map(str, done.first)) or "never"
    return " ".join(map(str, done.first[:4])) + " … " + " ".join(map(str, done.last))


def _disk(run: LongRun | None, plan: Plan, facts: Facts) -> list[str]:
    checkpoint = next((hook for hook in plan.hooks if hook.spec.name == "Checkpoint"), None)
    if checkpoint is None:
        return ["disk       no checkpoints are planned"]
    keep = checkpoint.spec.args.get("keep")
    actor = next((actor for actor in facts.actors if actor.name == "Checkpoint"), None)
    count = run.done_at(actor).count if run is not None and actor is not None else 0
    kept = min(count, int(keep) + 1) if isinstance(keep, int) else count
    return _room(kept, facts)


def _room(kept: int, facts: Facts) -> list[str]:
    need, free = kept * facts.checkpoint_bytes, shutil.disk_usage(".").free
    word = "" if need < free else "  NOT ENOUGH"
    each, count = human(facts.checkpoint_bytes), counted(kept, "checkpoint")
    return [f"disk       {count} of about {each}: {human(need)}, {human(free)} free{word}"]


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _or(value: int | None) -> str:
    return "unknown" if value is None else str(value)
