"""Finds settings of a plan that contradict each other. Settings that run but make no sense are warnings with the
numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from etude.errors import ConfigError, Finding
from etude.errors.spelling import nearest, suggest
from etude.inspection.check.oddities import oddities
from etude.inspection.check.results import is_certain, is_recorded, names_of, result_names
from etude.inspection.length import check_length, length_of
from etude.plan import Phase, Plan, Schedule, Spec, Training
from etude.units import Amount, parse_written

#: Arguments of hooks and curves that name a result of an evaluation, and what asks for a separate one.
_RESULT_ARGUMENTS = ("best", "metric", "monitor")
#: Which way results of known names improve.
_WAYS = {"min": ("loss", "rmse", "mae", "perplexity"), "max": ("accuracy", "f1", "auroc", "iou", "average_precision")}
#: Arguments that name what a hook writes.
_WRITES = ("path", "file", "filename")
#: Losses (without the ``Loss`` of their names) whose targets are numbers, and metrics whose targets are classes.
_OF_NUMBERS = ("MSE", "L1", "SmoothL1", "Huber", "PoissonNLL", "GaussianNLL")
_OF_CLASSES = ("Accuracy", "F1", "Confusion")


def contradictions(plan: Plan, *, unknown: Collection[str] = ()) -> list[Finding]:
    """Return every contradiction inside the plan. ``unknown`` are kinds of components that nobody could find, of which
    nothing can be said."""
    return [
        *check_length(plan), *_schedules(plan), *_intervals(plan), *_results(plan, unknown), *_written(plan),
        *_owners(plan), *_metrics(plan, unknown), *_judged(plan), *_directions(plan), *oddities(plan),
        *_shards(plan), *_retention(plan), *_numbers(plan), *_losses(plan),
        *_kinds_of_targets(plan),
    ]  # fmt: skip


def without_step(plan: Plan) -> Iterator[Finding]:
    """Report settings that a user-defined update ignores, because it does not take the engine's ``step``."""
    hint = "give it a parameter `step`, which does all of this, or leave the setting out"
    defaults = Training()
    for key in ("accumulate", "precision", "nonfinite", "nonfinite_limit"):
        if getattr(plan.train, key) != getattr(defaults, key):
            at = plan.places.get(("train", key), plan.update.at)
            yield Finding(str(at), f"train.{key} does nothing: the update {plan.update.name} decides itself", hint)
    for optimizer in plan.optimizers.values():
        for key in optimizer.short_clip or ["clip"] * bool(optimizer.clip):
            text = f"optim.{key} does nothing: the update {plan.update.name} decides itself"
            yield Finding(str(optimizer.spec.at), text, hint)


# -- schedules ---------------------------------------------------------------------------------------------------


def _schedules(plan: Plan) -> Iterator[Finding]:
    length = length_of(plan)
    for schedule in plan.schedules:
        yield from _order_of_phases(schedule)
        if length is None or not schedule.phases:
            continue
        for phase in schedule.phases:
            if phase.begin is not None and _compare(phase.begin, length) in (0, 1):
                text = f"a phase of {schedule.target} begins at {phase.begin}, but the run ends at {length}"
                yield Finding(str(phase.at), text, severity="warning")
        for phase, following in pairwise(schedule.phases):
            if phase.until is not None and _compare(phase.until, length) == 1:
                text = f"this phase of {schedule.target} lasts until {phase.until}, but the run ends at {length}"
                severity = "error" if following.until is None else "warning"
                yield Finding(str(phase.at), text, "the one after it never begins", severity)
        yield from _end_of_schedule(schedule, schedule.phases[-1], length)


def _order_of_phases(schedule: Schedule) -> Iterator[Finding]:
    end: Amount | None = None
    for number, phase in enumerate(schedule.phases):
        if phase.until is None and number < len(schedule.phases) - 1:
            text = f"this phase of {schedule.target} lasts until the end, but another one follows"
            yield Finding(str(phase.at), text, "give it an `until`")
        begin = phase.begin or end
        if phase.begin is not None and end is not None and _compare(phase.begin, end) == -1:
            text = (
                f"this phase of {schedule.target} begins at {phase.begin}, before the one in front of it ends ({end})"
            )
            yield Finding(str(phase.at), text)
        if phase.until is not None and begin is not None and _compare(phase.until, begin) in (-1, 0):
            yield Finding(
                str(phase.at), f"this phase of {schedule.target} ends at {phase.until}, but begins at {begin}"
            )
        end = phase.until


def _end_of_schedule(schedule: Schedule, last: Phase, length: Amount) -> Iterator[Finding]:
    if last.until is None:
        return
    order = _compare(last.until, length)
    if order == 1:
        text = f"the schedule of {schedule.target} continues until {last.until}, but the run ends at {length}"
        yield Finding(str(last.at), text, "`until: end` follows the run", "warning")
    elif order == -1 and not _ends_at_base(last.curve):
        text = f"the schedule of {schedule.target} ends at {last.until}, but the run continues until {length}"
        yield Finding(str(last.at), text, "the value stays where the schedule leaves it", "warning")


def _ends_at_base(curve: Spec) -> bool:
    """Return whether a phase is a warm-up, after which the base value stays."""
    return curve.name in ("Linear", "Constant", "Exponential") and curve.args.get("to", 1.0) == 1.0


def _compare(one: Amount, other: Amount) -> int | None:
    """Return -1, 0 or 1 if ``one`` is less, equal or more; None for different units, and for what is unread."""
    if one.unit != other.unit or not one.unit:
        return None
    return (one.value > other.value) - (one.value < other.value)


# -- hooks -------------------------------------------------------------------------------------------------------


def _intervals(plan: Plan) -> Iterator[Finding]:
    length = length_of(plan)
    for hook in plan.hooks:
        if length is not None and hook.every is not None and _compare(hook.every, length) == 1 and hook.spec.at.file:
            text = f"{hook.spec.name} acts every {hook.every}, but the run ends at {length}: it never falls due"
            yield Finding(str(hook.spec.at), text, severity="warning")


def _results(plan: Plan, unknown: Collection[str]) -> Iterator[Finding]:
    """Report results that nothing computes: ``best: accuracy`` needs that metric, and data to evaluate on."""
    names, certain = result_names(plan)
    curves = (phase.curve for schedule in plan.schedules for phase in schedule.phases)
    for spec in (*(hook.spec for hook in plan.hooks), *curves):
        for argument in _RESULT_ARGUMENTS:
            wanted = spec.args.get(argument)
            if not isinstance(wanted, str) or not wanted:
                continue
            if "val" not in plan.data:
                text = f"{spec.name}: {argument} {wanted!r} needs an evaluation, and data.val is missing"
                yield Finding(str(spec.place(argument)), text)
            elif "metric" in unknown:
                continue  # the metric with the misspelt name may be the one that gives it
            elif not is_recorded(wanted, names) and (certain or nearest(wanted, sorted(names)) is not None):
                text = f"{spec.name}: no metric gives {wanted!r}"
                yield Finding(str(spec.place(argument)), text, suggest(wanted, names - {"loss/"}))


def _metrics(plan: Plan, unknown: Collection[str]) -> Iterator[Finding]:
    """Report metrics that nothing computes, and two that give a result of the same name: one would be lost."""
    if plan.metrics and not {"val", "test"} & set(plan.data):
        text = f"{plan.metrics[0].name} measures nothing: metrics need data.val or data.test, which are missing"
        yield Finding(str(plan.metrics[0].at), text)
    seen: dict[str, Spec] = {}
    for spec in plan.metrics if "metric" not in unknown else ():
        for name in sorted(names_of(spec)) if is_certain(spec) else ():
            first = seen.setdefault(name, spec)
            if first is not spec:
                text = f"two metrics give a result {name.rstrip('/')!r}: {first.name} and {spec.name}"
                yield Finding(str(spec.at), text, "leave one out")
                break


def _judged(plan: Plan) -> Iterator[Finding]:
    """Report a result that several evaluations give to a hook that judges by it: the last one would decide."""
    hooks = [hook.spec for hook in plan.hooks if hook.spec.name == "Evaluate"]
    splits = dict.fromkeys(str(spec.args.get("split", "val")) for spec in hooks)
    if len(splits) < 2:
        return
    for spec in (hook.spec for hook in plan.hooks):
        key = next((key for key in _RESULT_ARGUMENTS if spec.args.get(key)), "")
        if key or spec.name == "EarlyStop":
            text = f"{spec.name} judges by {key or 'metric'}, and {' and '.join(splits)} are both evaluated"
            yield Finding(str(spec.place(key) if key else spec.at), text, "evaluate one of them by `etude test`")


def _directions(plan: Plan) -> Iterator[Finding]:
    """Warn of a ``mode`` that keeps the worst: a loss should fall, an accuracy should rise."""
    for spec in (hook.spec for hook in plan.hooks):
        name = next((str(spec.args[key]) for key in _RESULT_ARGUMENTS if spec.args.get(key)), "")
        mode, usual = spec.args.get("mode"), next((way for way, names in _WAYS.items() if name.startswith(names)), "")
        if usual and mode in ("min", "max") and mode != usual:
            text = f"{spec.name}: mode {mode!r} takes the worst {name} for the best"
            yield Finding(str(spec.place("mode")), text, f"leave `mode` out, or write {usual}", "warning")


def _written(plan: Plan) -> Iterator[Finding]:
    """Report two hooks or writers that write to the same file."""
    seen: dict[str, Spec] = {}
    for spec in (*(hook.spec for hook in plan.hooks), *plan.writers):
        named = [str(spec.args[word]) for word in _WRITES if isinstance(spec.args.get(word), str)]
        for file in named or ([f"the file of {spec.name}"] if spec.kind == "writer" else []):
            first = seen.setdefault(file, spec)
            if first is not spec:
                yield Finding(str(spec.at), f"{spec.name} writes {file}, which {first.name} ({first.at}) writes too")


def _numbers(plan: Plan) -> Iterator[Finding]:
    """Report values that every optimizer refuses, before anything is built."""
    for optimizer in plan.optimizers.values():
        for name in ("lr", "weight_decay", "momentum"):
            value = optimizer.spec.args.get(name)
            if isinstance(value, int | float) and value < 0:
                yield Finding(str(optimizer.spec.place(name)), f"{name} is {value}; it cannot be negative")


def _losses(plan: Plan) -> Iterator[Finding]:
    """Report a loss that is not one number: ``reduction: none`` gives one per sample."""
    for spec in plan.losses:
        if spec.args.get("reduction") == "none":
            text = f"{spec.name}: reduction 'none' gives a number per sample, and a loss is one number"
            yield Finding(str(spec.place("reduction")), text, "write mean or sum")


def _kinds_of_targets(plan: Plan) -> Iterator[Finding]:
    """Report a metric of classes with a loss of numbers: one of them does not fit the targets."""
    numbers = [spec.name for spec in plan.losses if spec.name.removesuffix("Loss") in _OF_NUMBERS]
    for spec in plan.metrics:
        if numbers and spec.name in _OF_CLASSES:
            text = f"{spec.name} compares classes, and the loss {numbers[0]} compares numbers"
            yield Finding(str(spec.at), text, "MAE, RMSE and R2 measure numbers", "warning")


def _retention(plan: Plan) -> Iterator[Finding]:
    """Report checkpoint settings that keep nothing, or not what was asked for."""
    yield from _shared_store(plan)
    for spec in (hook.spec for hook in plan.hooks if hook.spec.name == "Checkpoint"):
        for key in ("keep", "best_k", "failures"):
            value = spec.args.get(key)
            if isinstance(value, int) and value < 1:
                none = ": there would be nothing to resume from" if key == "keep" else ""
                yield Finding(
                    str(spec.places.get(key, spec.at)), f"checkpoint.{key} must be at least 1, not {value}{none}"
                )
        mode = spec.args.get("mode", "")
        if isinstance(mode, str) and mode not in ("", "min", "max"):
            at = str(spec.places.get("mode", spec.at))
            yield Finding(at, f"checkpoint.mode is min or max, not {mode!r}", suggest(mode, ("min", "max")))
        try:
            parse_written(spec.args.get("forever") or "1ep", unit="epoch")
        except ConfigError as error:
            at = str(spec.places.get("forever", spec.at))
            yield Finding(at, f"checkpoint.forever: {error.findings[0].message}", "write 10ep or 5000step")


def _shared_store(plan: Plan) -> Iterator[Finding]:
    """Report settings that several checkpoint hooks cannot have together: they share a store, and the first one
    decides what it keeps."""
    specs = [hook.spec for hook in plan.hooks if hook.spec.name == "Checkpoint"]
    for first, spec in zip(specs[:1] * len(specs), specs[1:], strict=False):
        for key in ("folder", "keep", "best", "best_k", "mode", "forever"):
            if key in spec.args and spec.args[key] != first.args.get(key):
                text = f"{key} of a second Checkpoint has no effect: both save to one place"
                yield Finding(str(spec.place(key)), text, f"set it once, in {first.at}")


def _shards(plan: Plan) -> Iterator[Finding]:
    """Find what does not work with sharded parameters, and what needs a GPU where the config asks for a CPU."""
    strategy = plan.parallel.strategy
    if plan.parallel.compression == "bf16" and plan.train.device == "cpu":
        text = "parallel.compression: bf16 needs a GPU, and train.device is cpu"
        yield Finding(str(plan.parallel.at), text, "write fp16, or powersgd")
    for spec in (optimizer.spec for optimizer in plan.optimizers.values()):
        if spec.name == "LBFGS" and (
            strategy not in ("auto", "none") or plan.parallel.is_split or plan.parallel.virtual_ranks
        ):
            text = f"LBFGS trains in one process only (parallel.strategy: {strategy})"
            yield Finding(str(spec.at), text, "use another optimizer, or remove `parallel`")
    for text, hint in plan.parallel.refusals(
        precision=plan.train.precision,
        compiled=bool(plan.train.compile),
        own_update=plan.update.name != "Step",
        losses=bool(plan.losses),
    ):
        yield Finding(str(plan.parallel.at), text, hint)
    if strategy not in ("fsdp", "hsdp") and not plan.parallel.is_split:
        return
    where = f"does not work with parameters in shards (parallel.strategy: {strategy})"
    if plan.parallel.is_split:
        where = "does not work with a model that is split (parallel)"
    elif plan.update.name != "Step":
        yield Finding(str(plan.update.at), f"an update of your own {where}", "use ddp")
    for spec in (optimizer.spec for optimizer in plan.optimizers.values()):
        if spec.name == "SGD" and spec.args.get("fused") is True:
            yield Finding(str(spec.place("fused")), f"fused SGD {where}", "remove `fused`, or use ddp")
        elif spec.name == "Adafactor":
            yield Finding(str(spec.at), f"Adafactor {where}", "use ddp, or another optimizer")
    if plan.parallel.offload and plan.train.device == "cpu":
        text = "parallel.offload keeps parameters in host memory: it needs a GPU, and train.device is cpu"
        yield Finding(str(plan.parallel.at), text, "remove `offload`")


def _owners(plan: Plan) -> Iterator[Finding]:
    """Report optimizers without ``params``: several optimizers need one list each."""
    if len(plan.optimizers) < 2:
        return
    for name, optimizer in plan.optimizers.items():
        if not optimizer.params:
            text = f"optimizer {name!r} has no `params`: with several optimizers each needs its own"
            yield Finding(str(optimizer.spec.at), text, 'write params: ["generator.*"]')
