"""Checks a plan against the data, the model and the disk, right before the first step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from etude.errors import Finding
from etude.errors.spelling import nearest
from etude.inspection.check.oddities import half_on_cpu
from etude.plan import Plan
from etude.preview.explain import Facts
from etude.units import Amount, counted, human

_DEFAULT_KEPT = 3
_CHECKPOINTS = "checkpoints"


def check_facts(plan: Plan, facts: Facts, *, parameters: Sequence[str] = (), folder: str = "") -> list[Finding]:
    """Return every contradiction between the plan and the facts.

    ``parameters`` are the names of the model's parameters, ``folder`` is that of the run.
    """
    return [
        *_data(plan, facts),
        *_rules(plan, parameters),
        *_lengths(plan, facts),
        *_amounts(plan, facts),
        *(half_on_cpu(plan) if facts.device == "cpu" and plan.train.device != "cpu" else ()),
        *_disk(plan, facts, folder or plan.folder),
    ]


def _data(plan: Plan, facts: Facts) -> Iterator[Finding]:
    train, val = plan.data.get("train"), plan.data.get("val")
    if train is not None and facts.steps_per_epoch == 0:
        why = f"drop_last leaves nothing of fewer than {train.batch_size} samples" if train.drop_last else ""
        yield Finding(str(train.at), "data.train gives no batch: the dataset is empty", why)
    if val is not None and facts.eval_batches == 0 and any(hook.spec.name == "Evaluate" for hook in plan.hooks):
        yield Finding(str(val.at), "data.val gives no batch: the dataset is empty")


def _rules(plan: Plan, parameters: Sequence[str]) -> Iterator[Finding]:
    """Report patterns that match no parameter."""
    if not parameters:
        return
    for optimizer in plan.optimizers.values():
        for group in optimizer.groups:
            if group.match and not _matches(group.match, parameters):
                yield Finding(
                    str(group.at), f"pattern {group.match!r} matches no parameter", _near(group.match, parameters)
                )
        for pattern in optimizer.params:
            if not _matches(pattern, parameters):
                at = str(optimizer.spec.place("params"))
                yield Finding(at, f"pattern {pattern!r} matches no parameter", _near(pattern, parameters))


def _lengths(plan: Plan, facts: Facts) -> Iterator[Finding]:
    """Report intervals and schedules in other units than the run's length, now that the length of an epoch is known."""
    per_epoch, total = facts.steps_per_epoch, facts.total_steps
    if not per_epoch or total is None:
        return
    for hook in plan.hooks:
        steps = _steps(hook.every, per_epoch)
        if steps is not None and steps > total and hook.spec.at.file:
            text = f"{hook.spec.name} acts every {hook.every} ({steps} steps), but the run has {total} steps"
            yield Finding(str(hook.spec.at), text, severity="warning")
    for schedule in plan.schedules:
        steps = _steps(schedule.phases[-1].until, per_epoch) if schedule.phases else None
        if steps is not None and steps > total:
            text = f"the schedule of {schedule.target} continues until step {steps}, but the run has {total}"
            yield Finding(str(schedule.phases[-1].at), text, "`until: end` follows the run", "warning")


def _amounts(plan: Plan, facts: Facts) -> Iterator[Finding]:
    """Report a limit that leaves nothing out, and gradients that are collected for longer than an epoch."""
    if not facts.batches:
        return
    for key in ("limit_batches", "overfit"):
        limit = getattr(plan.train, key)
        if limit is not None and limit > facts.batches:
            at = plan.places.get(("train", key), "")
            text = f"train.{key} is {limit}, and an epoch has {facts.batches} batches: nothing is left out"
            yield Finding(str(at), text, severity="warning")
    group, steps = plan.train.accumulate, facts.steps_per_epoch or 0
    if group > steps:
        at = plan.places.get(("train", "accumulate"), "")
        text = f"train.accumulate is {group}, and an epoch has {counted(steps, 'step')}"
        rare = "the whole run makes one update" if group >= (facts.total_steps or group + 1) else ""
        yield Finding(str(at), text, rare or "one update takes more than an epoch", "warning")


def _disk(plan: Plan, facts: Facts, folder: str) -> Iterator[Finding]:
    spec = next((hook.spec for hook in plan.hooks if hook.spec.name == "Checkpoint"), None)
    if spec is None or not facts.checkpoint_bytes:
        return
    kept = spec.args.get("keep", _DEFAULT_KEPT)
    # One more: a checkpoint is deleted only after the newer one is complete.
    count = (kept if isinstance(kept, int) and kept > 0 else 1) + bool(spec.args.get("best")) + 1
    place = str(spec.args.get("folder") or os.path.join(folder, _CHECKPOINTS))
    if "://" in place:
        return
    needed, free = facts.checkpoint_bytes * count, shutil.disk_usage(_existing(place)).free
    if needed > free + _taken(place):
        text = f"{count} checkpoints need {human(needed)}, the disk has {human(free)}"
        yield Finding(str(spec.at), text, "keep fewer, or save elsewhere")


def _steps(amount: Amount | None, per_epoch: int) -> int | None:
    return None if amount is None or amount.unit == "second" else amount.steps(per_epoch)


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for name in names)


def _near(pattern: str, parameters: Sequence[str]) -> str:
    """Return the name in the model that the pattern was probably meant to match."""
    words = sorted({part for name in parameters for part in name.split(".") if not part.isdigit()})
    for part in pattern.replace("*", "").split("."):
        near = nearest(part, words) if part and part not in words else None
        if near:
            return f"did you mean {near!r}?"
    return f"parameters are called like {parameters[0]}"


def _taken(folder: str) -> int:
    """Return the space that the run's own checkpoints take up: those of a resumed run make room for newer ones."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # another run in this folder is reported later
                total += os.lstat(os.path.join(above, name)).st_size
    return total


def _existing(folder: str) -> str:
    path = os.path.abspath(folder)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
