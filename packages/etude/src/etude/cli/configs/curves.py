"""Curves of ``etude plan``: every scheduled value over the steps of the run."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from etude.errors import printable

if TYPE_CHECKING:
    from etude.plan import Plan
    from etude.preview.explain import Facts, GroupFact
    from etude.schedules.phases import Timeline

#: What is drawn: a name, and the value by step.
Curves = dict[str, list[tuple[float, float]]]


def curves_of(plan: Plan, facts: Facts) -> Curves:
    """Return learning rate, momentum and all scheduled values of every group; flat lines for constants."""
    from etude.preview.explain import timelines
    from etude.schedules.phases import sample

    lines, steps = timelines(plan, facts), facts.total_steps
    targets = dict.fromkeys(["lr", "momentum", *(line.target for line in lines)])
    curves: Curves = {}
    for target in targets if steps else ():
        for group in facts.groups:
            base = group.values.get(target)
            if base is not None and steps:
                name = " ".join(filter(None, [shown_as(target, group), group.optimizer, group.name]))
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


def print_curves(curves: Curves) -> None:
    from etude.preview.draw import text_plot

    seen: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for name, curve in curves.items():
        seen.setdefault(tuple(curve), []).append(name)
    for points, names in seen.items():
        if len({value for _, value in points}) == 1:
            print(f"constant   {printable(listed(names))}: {points[0][1]:g}")
            continue
        print(f"curve      {printable(listed(names))}")
        print("\n".join(text_plot(points)))
        print(f"{'':>10}step {points[0][0]:g}{'':<50}step {points[-1][0]:g}")


def abridged(numbers: Sequence[object]) -> str:
    if len(numbers) <= 8:
        return " ".join(map(str, numbers)) or "never"
    return " ".join(map(str, numbers[:4])) + " … " + " ".join(map(str, numbers[-2:]))


def listed(names: Sequence[str]) -> str:
    if len(names) <= 6:
        return ", ".join(names)
    return ", ".join(names[:3]) + f", … {names[-1]} ({len(names)} groups)"


def shown_as(target: str, group: GroupFact | None) -> str:
    """Return what the optimizer of a group calls a value: a schedule of ``momentum`` drives the first of two betas."""
    return "beta1" if target == "momentum" and group is not None and "beta2" in group.values else target
