"""Options to try a config out: what they change in a plan, and which runs leave no files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etude import dialects
from etude.fast_dataclass import record, replace
from etude.plan import Plan
from etude.units import Amount

if TYPE_CHECKING:
    from etude.building.options import Options


@record(kw_only=True)
class DebugOptions:
    """Ways to try a config out: fast dev run, fewer batches, or overfitting a few."""

    fast_dev_run: bool = False
    limit_batches: int | None = None
    overfit: int | None = None
    max_seconds: float | None = None
    device: str = ""
    seed: int | None = None


def leaves_nothing(trial: DebugOptions | None, options: Options) -> bool:
    """Return whether a try leaves no files: a fast dev run never does, overfitting only where a folder was asked
    for.
    """
    if trial is None:
        return False
    return trial.fast_dev_run or (trial.overfit is not None and options.folder is None)


def flags_of(options: Options, trial: DebugOptions | None) -> dict[str, Any]:
    """Return what the command line decides and the config does not say, by the name of the flag."""
    given = vars(trial).copy() if trial is not None else {}
    given.pop("fast_dev_run", None)  # it leaves no files
    limit = given.pop("max_seconds", None)
    given["max_time"] = None if limit is None else str(Amount(limit, "second"))
    own = [flag.dest for dialect in dialects.known() for flag in dialect.flags if not flag.ignorable]
    resuming = ("config_file", "resume_from", "auto_resume")
    given |= {dest: options.extras.get(dest) for dest in own if dest not in resuming}
    given["chaos"] = options.chaos
    return {name.replace("_", "-"): value for name, value in given.items() if value not in (None, "", False, [], ())}


def with_debug_options(plan: Plan, trial: DebugOptions) -> Plan:
    """Return the plan with the changes that the command line makes for this run only."""
    given = {name: getattr(trial, name) for name in ("limit_batches", "overfit", "max_seconds", "device", "seed")}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value not in (None, "")}
    plan = replace(plan, train=replace(plan.train, **changes))
    # A few batches learnt by heart say nothing about other data, and nobody wants those weights back.
    unwanted = ("Checkpoint", "Evaluate") if trial.overfit is not None else ("Checkpoint",)
    if trial.fast_dev_run or trial.overfit is not None:
        hooks = tuple(hook for hook in plan.hooks if hook.spec.name not in unwanted)
        plan = replace(plan, hooks=hooks, writers=())
    return dialects.of(plan).shorten_plan(plan) if trial.fast_dev_run else plan
