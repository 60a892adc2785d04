"""Reads what a script passes to :class:`~etude.Trainer`, and refuses what cannot be meant."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from etude.building.components import build_hook
from etude.core.hook import FunctionHook, Hook, require_points
from etude.core.run import Run
from etude.core.update import Step
from etude.dialects.native.lower import PRIORITY, lower_hook
from etude.errors import ConfigError, UserError
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.evaluate import Evaluate
from etude.hooks.log import Log
from etude.hooks.schedule import Schedule, TorchSchedule
from etude.hooks.timer import Timer
from etude.plan import Plan, Training
from etude.schedules.phases import schedules_from

#: Hooks that sections of a config stand for, by their names there.
_SECTIONS: dict[str, type[Hook]] = {"Timer": Timer, "Log": Log, "Evaluate": Evaluate, "Checkpoint": Checkpoint}


def unusual_settings(**given: Any) -> dict[str, Any]:
    """Return the settings that differ from those of a config that does not have them."""
    usual = {field.name: field.default for field in dataclasses.fields(Training)}
    return {key: value for key, value in given.items() if value is not None and _differ(value, usual.get(key, ...))}


def _differ(value: Any, usual: Any) -> bool:
    return type(value) is not type(usual) or bool(value != usual)


def hooks_of_sections(plan: Plan, unwanted: Collection[str]) -> Iterator[Hook]:
    """Yield the hooks that the sections of a config stand for; those that were passed as objects exist already."""
    for name, kind in _SECTIONS.items():
        made = (one for one in plan.hooks if one.spec.name == name and one.priority == PRIORITY[name])
        found = None if name in unwanted else next(made, None)
        if found is not None:
            hook = kind(**found.spec.args)
            hook.every = found.every
            yield hook


def log_of(log: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the section ``log`` of a config, and the writers that were passed as objects."""
    if isinstance(log, str) and re.fullmatch(r"[a-zA-Z_]+", log):
        raise UserError(f"log={log!r} is no interval; write log=[{log!r}] if this is a writer or a tracker")
    given = {"every": log} if not isinstance(log, Mapping | list | tuple) else log
    section = dict(given) if isinstance(given, Mapping) else {"to": list(given)}
    several = section.get("to", [])
    items = several if isinstance(several, list | tuple) else [several]
    made = [item for item in items if callable(getattr(item, "write", None))]
    section["to"] = [item for item in items if not any(item is one for one in made)]
    return {key: value for key, value in section.items() if value}, made


def hook_of(given: Hook | Callable[[Run], Any]) -> Hook:
    if isinstance(given, type):
        raise UserError(f"hooks: {given.__name__} is a class; make an object of it: {given.__name__}()")
    if isinstance(given, str | Mapping):  # as in a config
        return build_hook(lower_hook(given))
    if isinstance(given, Hook):
        require_points(given)
        return given
    refuse_scheduler("hooks", given)
    if not callable(given):
        name = type(given).__name__
        raise UserError(f"hooks: {name} is neither a function nor a hook; write class {name}(etude.Hook)")
    return FunctionHook(given, "after_step")


def refuse_scheduler(name: str, given: Any) -> None:
    """Refuse a scheduler or an optimizer of torch, or its ``step``, where a function or a module is due."""
    owner = getattr(given, "__self__", None)
    part = given if isinstance(given, LRScheduler | torch.optim.Optimizer) else owner
    if isinstance(part, LRScheduler):
        kind = type(part).__name__
        raise UserError(f"{name}: {kind} is a scheduler of torch; pass it as Trainer(schedule=…, schedule_by='step')")
    if isinstance(part, torch.optim.Optimizer):
        raise UserError(f"{name}: {type(part).__name__} is an optimizer; pass it as Trainer(optimizer=…)")


def schedule_hooks(schedule: Any, by: str, optimizers: Mapping[str, torch.optim.Optimizer]) -> list[Hook]:
    if schedule is None:
        return []
    several = list(schedule.values()) if isinstance(schedule, Mapping) else schedule
    several = several if isinstance(several, list | tuple) else [several]
    if several and all(isinstance(one, LRScheduler) for one in several):
        return [TorchSchedule(one, by, among=optimizers.values()) for one in several]
    if by:
        raise UserError("schedule_by is for schedulers of torch; phases say themselves how long they last")
    return [Schedule(schedules_from(schedule))]


def own_update(update: Callable[..., Any], step: Step) -> Any:
    """Return a user-defined update, with the engine's step if it takes one."""
    return partial(update, step=step) if "step" in parameters_of(update) else update


def parameters_of(function: Callable[..., Any]) -> Collection[str]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()


def require_parameters(model: torch.nn.Module, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
    """Refuse optimizers that hold no parameter of ``model``: nothing would be learnt."""
    own = {id(parameter) for parameter in model.parameters()}
    held = [p for optimizer in optimizers.values() for group in optimizer.param_groups for p in group["params"]]
    if own and not any(id(parameter) in own for parameter in held):
        raise ConfigError(
            "the optimizer holds no parameter of the model", hint="make it with model.parameters() of this very model"
        )


def require_objects(loss: Any, optimizer: Any) -> None:
    """Refuse names and classes where objects are due: names are for configs."""
    if isinstance(loss, str | type) or (loss is not None and not callable(loss)):
        name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
        raise UserError(f"loss={name!r} is no function: make an object of it, loss=torch.nn.CrossEntropyLoss()")
    for one in optimizer.values() if isinstance(optimizer, Mapping) else [optimizer]:
        if not hasattr(one, "param_groups") or isinstance(one, type):
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            raise UserError(
                f"optimizer={name!r} is no optimizer: make one, torch.optim.AdamW(model.parameters(), lr=1e-3)"
            )
