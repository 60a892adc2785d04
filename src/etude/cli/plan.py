"""``etude plan CONFIG``: what exactly will happen, before it does."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from etude.errors import UserError

if TYPE_CHECKING:
    from etude.explain import Act, Facts, GroupFact
    from etude.plan import Plan
    from etude.schedules.phases import Timeline

POINT_ORDER = (
    "before_run", "before_train", "before_epoch", "before_step", "after_forward", "before_update", "after_step",
    "after_epoch", "before_eval", "before_eval_step", "after_eval_step", "after_eval", "before_save", "after_load",
    "after_train", "after_run", "on_error",
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="what exactly will happen: steps, curves, hooks, saves",
        description="Tell what a run will do. The model and the data are built, nothing is trained or written.",
    )
    parser.add_argument("config", metavar="CONFIG")
    parser.add_argument("overrides", metavar="key=value", nargs="*")
    parser.add_argument("--plot", metavar="FILE", help="draw the curves of all groups into FILE (.png, .svg, .pdf)")
    parser.add_argument("--acts", action="store_true", help="every act of every hook, one per line")
    parser.add_argument("--dialect", default="")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from etude import compat
    from etude.api import load_plan, require_sound
    from etude.build import build
    from etude.explain import story
    from etude.facts import facts_of

    compat.install()
    plan, _ = load_plan(args.config, args.overrides, dialect=args.dialect)
    plan = require_sound(plan)
    built = build(plan)
    facts = facts_of(built)
    if built.face is not None:
        return _foreign(plan, facts, args)
    if args.acts:
        for act in story(plan, facts):
            print(f"epoch {act.epoch}  step {act.step}  {act.point:<16} {act.who}")
        return 0
    acts = list(story(plan, facts)) if facts.steps_per_epoch else []
    for block in (_length(plan, facts), _groups(facts), _hooks(facts), _times(acts, facts), _disk(acts, plan, facts)):
        print("\n".join(block) + "\n")
    curves = _curves(plan, facts)
    _print_curves(curves)
    if args.plot:
        from etude.draw import save_plot

        save_plot(curves, args.plot, title=plan.name)
        print(f"drawn into {args.plot}")
    return 0


def _foreign(plan: Plan, facts: Facts, args: argparse.Namespace) -> int:
    """A run in another system's words is driven by that system's hooks: what they decide while running is not told."""
    if args.acts or args.plot:
        raise UserError(f"the acts and curves of a {plan.dialect} config are decided by its own hooks while it runs; "
                        "`etude convert` makes a native config that tells them")  # fmt: skip
    for block in (_length(plan, facts), _groups(facts), _hooks(facts)):
        print("\n".join(block) + "\n")
    print(
        f"values, evaluations and saves are decided by {plan.dialect}'s own hooks while it runs and are not told here;"
    )
    print("`etude convert` makes a native config whose plan tells them")
    return 0


def _length(plan: Plan, facts: Facts) -> list[str]:
    train = plan.data.get("train")
    batch = f" of {train.batch_size}" if train else ""
    epochs = f"{plan.train.epochs} epochs, " if plan.train.epochs else ""
    updates = -(-facts.total_steps // plan.train.accumulate) if facts.total_steps else None
    rows = [
        ("run", f"{plan.name} ({plan.dialect})"),
        ("model", plan.model.name),
        ("length", f"{_or(facts.total_steps)} steps, {epochs}{_or(facts.steps_per_epoch)} batches{batch} per epoch"),
        (
            "updates",
            f"{_or(updates)}" + (f" (every {plan.train.accumulate} steps)" if plan.train.accumulate > 1 else ""),
        ),
        ("precision", plan.train.precision),
    ]
    return [f"{name:<10} {value}" for name, value in rows]


def _groups(facts: Facts) -> list[str]:
    lines = ["groups     optimizer    name                 tensors    numbers  values"]
    for group in facts.groups:
        shown = ("lr", "weight_decay", "momentum")
        values = "  ".join(f"{key} {group.values[key]:g}" for key in shown if key in group.values)
        name = group.name if len(group.name) <= 20 else group.name[:19] + "…"
        lines.append(
            f"           {group.optimizer or '-':<12} {name:<20} {group.tensors:>7} {group.numbers:>10}  {values}"
        )
    return lines


def _hooks(facts: Facts) -> list[str]:
    lines = ["hooks      at each point, in the order they act"]
    for point in POINT_ORDER:
        actors = sorted((a for a in facts.actors if point in a.points), key=lambda a: a.priority)
        if actors:
            who = ", ".join(f"{a.name} ({a.priority}{f', every {a.every}' if a.every else ''})" for a in actors)
            lines.append(f"           {point:<16} {who}")
    return lines


def _times(acts: list[Act], facts: Facts) -> list[str]:
    from etude.explain import done_at

    lines = ["times      after which steps"]
    for actor in facts.actors:
        if actor.acting:
            numbers = done_at(acts, actor.name)
            lines.append(f"           {actor.name:<16} {_abridged(numbers)}  ({len(numbers)} times)")
    counts = Counter(act.point for act in acts)
    lines.append(f"           in all {len(acts)} calls of hooks at {len(counts)} points")
    return lines


def _disk(acts: list[Act], plan: Plan, facts: Facts) -> list[str]:
    from etude.explain import saves

    checkpoint = next((hook for hook in plan.hooks if hook.spec.name == "Checkpoint"), None)
    if checkpoint is None:
        return ["disk       no checkpoints are planned"]
    keep = checkpoint.spec.args.get("keep")
    count = len(saves(acts))
    kept = min(count, int(keep) + 1) if isinstance(keep, int) else count
    need, free = kept * facts.checkpoint_bytes, shutil.disk_usage(".").free
    word = "" if need < free else "  NOT ENOUGH"
    each = _size(facts.checkpoint_bytes)
    return [f"disk       {kept} checkpoints of about {each}: {_size(need)}, {_size(free)} free{word}"]


def _curves(plan: Plan, facts: Facts) -> dict[str, list[tuple[float, float]]]:
    """Learning rate, momentum and whatever else a schedule drives, of every group; flat where nothing drives it."""
    from etude.explain import timelines
    from etude.schedules.phases import sample

    lines, steps = timelines(plan, facts), facts.total_steps
    targets = dict.fromkeys(["lr", "momentum", *(line.target for line in lines)])
    curves: dict[str, list[tuple[float, float]]] = {}
    for target in targets if steps else ():
        for group in facts.groups:
            base = group.values.get(target)
            if base is not None and steps:
                name = " ".join(filter(None, [target, group.optimizer, group.name]))
                line = next((line for line in lines if line.target == target and _drives(line, group)), None)
                curves[name] = (
                    [(float(s), v) for s, v in sample(line, base, steps)]
                    if line
                    else [(0.0, base), (steps - 1.0, base)]
                )
    return curves


def _drives(line: Timeline, group: GroupFact) -> bool:
    chosen = not line.groups or any(fnmatchcase(group.name, pattern) for pattern in line.groups)
    return chosen and line.optimizer in ("", group.optimizer)


def _print_curves(curves: dict[str, list[tuple[float, float]]]) -> None:
    from etude.draw import text_plot

    seen: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for name, curve in curves.items():
        seen.setdefault(tuple(curve), []).append(name)
    for points, names in seen.items():
        if len({value for _, value in points}) == 1:
            print(f"constant   {', '.join(names)}: {points[0][1]:g}")
            continue
        print(f"curve      {', '.join(names)}")
        print("\n".join(text_plot(points)))
        print(f"{'':>10}step {points[0][0]:g}{'':<50}step {points[-1][0]:g}")


def _abridged(numbers: list[int]) -> str:
    if len(numbers) <= 8:
        return " ".join(map(str, numbers)) or "never"
    return " ".join(map(str, numbers[:4])) + " … " + " ".join(map(str, numbers[-2:]))


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _or(value: int | None) -> str:
    return "unknown" if value is None else str(value)
