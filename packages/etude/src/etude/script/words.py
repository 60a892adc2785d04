"""Says what a script passes to ``Trainer`` in the words of a config.

So one set of functions checks both ways in: :func:`etude.dialects.native.lower.survey` reads the values, and
:func:`etude.inspection.check.check_settings` compares them with one another. The same words are the ``plan.yaml`` of
the run, which ``etude diff``, ``etude runs``, the board and trackers read.
"""

from __future__ import annotations

import inspect
import re
import warnings
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from etude.builtins import COLLATES
from etude.config.tree import Tree
from etude.core.evaluation import metric_name
from etude.core.hook import FunctionHook, Hook, require_call
from etude.core.run import Run
from etude.dialects.native.lower import survey
from etude.errors import ConfigError, Finding
from etude.fast_dataclass import replace
from etude.hooks.schedule import Schedule as Schedules
from etude.hooks.schedule import TorchSchedule
from etude.inspection.check import check_settings, without_step
from etude.inspection.check.reality import check_facts
from etude.plan import Plan, Schedule, Spec
from etude.script.arguments import parameters_of
from etude.session.first_step.unsaved import warn_of_unsaved_state
from etude.session.lengths import facts_of

#: Packages whose classes a config calls by their short names.
_SHORT = ("etude", "torch")
#: Classes of Étude that have another name in configs.
_CALLED = {"Ema": "EMA", "Swa": "SWA"}
#: Keys of a config that have another name in Python.
_ARGUMENTS = {
    "log.every": "log", "log.to": "log", "checkpoint.every": "checkpoint", "data.train.batch_size": "batch_size",
    "data.train.workers": "workers",
}  # fmt: skip
_KEY = re.compile(r"\b(?:(?:data\.train|log|checkpoint|train|optim|data)\.)(\w+)")
_MOST_NUMBERS = 64
#: Samplers of torch's loaders, and whether they shuffle.
_ORDERS = {torch.utils.data.RandomSampler: True, torch.utils.data.SequentialSampler: False}


def checked(
    values: Mapping[str, Any], schedules: Sequence[Schedule] = (), *, whole: bool = True, unknown: Collection[str] = ()
) -> tuple[Plan, Tree]:
    """Return the plan, and the words it was made of. Raise one error with everything that is wrong.

    ``unknown`` are kinds of components of which nothing can be said: metrics, of a model that validates itself.
    Without ``whole`` the length and the data of the run are not known yet, and only the values are looked at.
    """
    plan, found = survey(Tree({key: value for key, value in values.items() if key != "schedule"}))
    plan = replace(plan, schedules=tuple(map(_named, schedules)))
    found += check_settings(plan, unknown=unknown) if whole else []
    refuse(found)
    return plan, Tree(dict(values))


def plan_of_settings(
    model: Any, optim: Mapping[str, Any], settings: Mapping[str, Any], *, init_from: Any, update: Any
) -> Plan:
    """Return the plan of the settings alone. Raise an error for wrong values, before anything is made of them."""
    words = {
        "model": describe(model), "optim": optim, "train": {"epochs": 1, **settings},
        "data": {"train": {"dataset": "data"}}, **({"init_from": init_from} if init_from else {}),
    }  # fmt: skip
    plan, _ = checked(words, whole=False)
    if update is not None and "step" not in parameters_of(update):
        require_call(update, "update", "run", "batch")
        refuse(without_step(replace(plan, update=Spec(kind="update", name=name_of(update)))))
    return plan


def plan_with_hooks(
    values: Mapping[str, Any], hooks: Sequence[Hook], *, unknown: Collection[str] = ()
) -> tuple[Plan, Tree]:
    """Return the plan and the words of a run with these hooks; schedules are a section of their own."""
    schedules = [one for hook in hooks if isinstance(hook, Schedules) for one in hook.given]
    stepped = {hook.by: hook.scheduler for hook in hooks if isinstance(hook, TorchSchedule)}
    others = [hook for hook in hooks if not isinstance(hook, Schedules | TorchSchedule)]
    every = {
        **values,
        "schedule": describe_schedule(schedules, stepped),
        "hooks": [*map(describe_hook, others), *values.get("hooks", ())],
    }
    return checked(
        {key: value for key, value in every.items() if value or key == "checkpoint"}, schedules, unknown=unknown
    )


def require_real(plan: Plan, run: Run, *, folder: Any, saves: bool) -> None:
    """Check what only data, model and disk can show, right before the first step."""
    refuse(check_facts(plan, facts_of(run), folder=str(folder or ".")))
    if saves:
        warn_of_unsaved_state(run)


def refuse(findings: Iterable[Finding]) -> None:
    """Raise what is wrong, in the words of Python; warn of what is only odd."""
    said = [_in_python(finding) for finding in findings]
    errors = [finding for finding in said if finding.severity == "error"]
    if errors:
        raise ConfigError(errors)
    for finding in said:
        warnings.warn(str(replace(finding, severity="error")), stacklevel=4)


def _in_python(finding: Finding) -> Finding:
    """Return the finding with names of arguments for keys. Advice about YAML or the command line is left out."""
    message = _KEY.sub(lambda key: _ARGUMENTS.get(key[0], key[1]), finding.message)
    hint = "" if re.search(r"\w: [{\[]|command line|--\w|`etude", finding.hint) else finding.hint
    return Finding("", message, _KEY.sub(lambda key: _ARGUMENTS.get(key[0], key[1]), hint), finding.severity)


# -- describing objects ----------------------------------------------------------------------------------------------


def describe(part: Any, **more: Any) -> dict[str, Any]:
    """Return ``{"type": …}`` with the arguments of an object that it still shows.

    >>> describe(torch.nn.CrossEntropyLoss(label_smoothing=0.1))
    {'type': 'CrossEntropyLoss', 'label_smoothing': 0.1}
    """
    return {"type": name_of(part), **_arguments(part), **{key: value for key, value in more.items() if value}}


def describe_model(model: torch.nn.Module) -> dict[str, Any]:
    """Return the class, the number of parameters, and a checksum of the names and shapes of all tensors."""
    shapes = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in _tensors(model)]
    count = sum(param.numel() for param in model.parameters())
    return {**describe(model), "parameters": count, "shapes": f"{zlib.crc32(' '.join(shapes).encode()):08x}"}


def describe_optimizer(optimizer: Any, **more: Any) -> dict[str, Any]:
    """Return the class and the settings of the first group, and of other groups what is different there."""
    first, *others = optimizer.param_groups
    usual = _defaults(type(optimizer))
    own = {
        key: value
        for key, value in first.items()
        if key not in ("params", "initial_lr") and _is_plain(value) and (key == "lr" or usual.get(key, ...) != value)
    }
    rest = [
        {key: value for key, value in group.items() if _is_plain(value) and first.get(key) != value}
        | {"tensors": len(group["params"])}
        for group in others
    ]
    described = {key: value for key, value in more.items() if value is not None}
    return {"type": name_of(optimizer), **_plain(own), **({"more_groups": rest} if rest else {}), **described}


def describe_data(data: Any, batch_size: int | None, workers: int, *, trains: bool = True) -> dict[str, Any]:
    """Return the section of one split: of a dataset with the loader's settings, of batches with their own."""
    inner = getattr(data, "dataset", None)
    dataset = data if batch_size is not None or inner is None else inner
    described: dict[str, Any] = {"dataset": describe(dataset)}
    if hasattr(dataset, "__len__"):
        described["dataset"]["samples"] = len(dataset)
    if batch_size is not None:
        return described | {"batch_size": batch_size} | ({"workers": workers} if workers else {})
    if inner is not None:  # a DataLoader, or another loader around a dataset
        described["dataset"]["loader"] = name_of(data)
        described["dataset"]["order"] = name_of(getattr(data, "sampler", None))
        for key in ("batch_size", "drop_last", "num_workers"):
            value = getattr(data, key, None)
            described["dataset"] |= {key: value} if value else {}
        shuffled = _ORDERS.get(type(getattr(data, "sampler", None)))
        described |= {"shuffle": shuffled} if shuffled is (not trains) else {}
        if name_of(getattr(data, "collate_fn", None)) in COLLATES:
            described["collate"] = describe(data.collate_fn)
    return described


def describe_metric(metric: Any) -> dict[str, Any]:
    """Return a metric; one that is not Étude's with the name of its results."""
    own = type(metric).__module__.startswith("etude.metrics.")
    return describe(metric) | ({} if own else {"name": metric_name(metric)})


def describe_hook(hook: Hook) -> dict[str, Any]:
    """Return a hook with its arguments, and when it acts; a function with its point."""
    if isinstance(hook, FunctionHook):
        described = {"type": name_of(hook.function), "point": hook.point}
    else:
        described = {
            key: value for key, value in describe(hook).items() if key not in ("every", "priority", "essential")
        }
    described |= (
        {"every": str(hook.every) if not isinstance(hook.every, int) else f"{hook.every}step"} if hook.every else {}
    )
    return described | ({"priority": hook.priority} if hook.priority != type(hook).priority else {})


def describe_schedule(schedules: Sequence[Schedule], stepped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the phases of each value, or torch's schedulers with when they are stepped."""
    described: dict[str, Any] = {
        one.target: [
            {"type": phase.curve.name, **phase.curve.args} | ({"until": str(phase.until)} if phase.until else {})
            for phase in map(_with_named_curve, one.phases)
        ]
        for one in schedules
    }
    for by, scheduler in stepped.items():
        described.setdefault("lr", []).append(
            {**_plain(_scheduler_state(scheduler)), "type": name_of(scheduler), "by": by}
        )
    return described


def name_of(part: Any) -> str:
    """Return the name of an object's class, or of a function, as a config has it.

    >>> name_of(torch.nn.MSELoss()), name_of(torch.nn.functional.mse_loss)
    ('MSELoss', 'mse_loss')
    """
    if isinstance(part, partial):
        return name_of(part.func)
    named = part if hasattr(part, "__qualname__") else type(part)
    if str(named.__module__).partition(".")[0] in _SHORT:
        return _CALLED.get(named.__name__, named.__name__)
    return f"{named.__module__}.{named.__qualname__.rpartition('<locals>.')[2]}"


def _named(schedule: Schedule) -> Schedule:
    return replace(schedule, phases=tuple(map(_with_named_curve, schedule.phases)))


def _with_named_curve(phase: Any) -> Any:
    """Return the phase of a schedule with its curve as a spec, if a script has passed an object or a function."""
    if isinstance(phase.curve, Spec):
        return phase
    described = describe(phase.curve)
    return replace(phase, curve=Spec(kind="schedule", name=described.pop("type"), args=described))


def _scheduler_state(scheduler: Any) -> dict[str, Any]:
    held = {key: value for key, value in vars(scheduler).items() if not key.startswith("_") and _is_plain(value)}
    return {key: value for key, value in held.items() if key not in ("last_epoch", "base_lrs", "num_bad_epochs")}


def _arguments(part: Any) -> dict[str, Any]:
    """Return the arguments that an object was made with, if it keeps them under their names."""
    if isinstance(part, partial):
        return dict(_plain({key: value for key, value in part.keywords.items() if _is_plain(value)}))
    if hasattr(part, "__qualname__"):
        return {}
    found = {}
    for name, default in _defaults(type(part)).items():
        value = getattr(part, "__dict__", {}).get(name, getattr(part, "_buffers", {}).get(name))
        if name not in ("type", "kind") and value is not None and _is_plain(value) and not _is_same(value, default):
            found[name] = value
    return dict(_plain(found))


def _defaults(kind: type) -> dict[str, Any]:
    try:
        return {one.name: one.default for one in inspect.signature(kind).parameters.values()}
    except (TypeError, ValueError):
        return {}


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() <= _MOST_NUMBERS
    if isinstance(value, list | tuple):
        return len(value) <= _MOST_NUMBERS and all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _is_same(value: Any, default: Any) -> bool:
    return not isinstance(value, torch.Tensor) and type(value) is type(default) and bool(value == default)


def _plain(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {str(key): _plain(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_plain(value) for value in values]
    return values.tolist() if isinstance(values, torch.Tensor) else values


def _tensors(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    both = (*model.named_parameters(), *model.named_buffers())
    return [(name, tensor) for name, tensor in both if not torch.nn.parameter.is_lazy(tensor)]
