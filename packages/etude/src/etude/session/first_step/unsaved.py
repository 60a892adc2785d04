"""Finds stateful objects that user-defined functions and hooks use and that no checkpoint would hold."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from etude.core.hook import FunctionHook
from etude.core.run import Part, Run
from etude.errors import ConfigError
from etude.errors.advice import is_library
from etude.errors.own_code import is_own
from etude.hooks.schedule import Schedule

#: How many functions of the user, one calling the other, are looked into.
_DEEPEST = 3


def warn_of_unsaved_state(run: Run) -> None:
    """Warn once per stateful object that a resumed run would begin anew, and say how to save it.

    A scheduler of torch is refused: its learning rates would silently begin anew, too.
    """
    saved, reported = _saved(run), set[int]()
    for owner, user in _users(run):
        for name, used in _used_by(user):
            if not _has_state(used) or any(used is one for one in saved) or id(used) in reported:
                continue
            reported.add(id(used))
            text = f"{owner} uses {name} ({type(used).__name__}), whose state is in no checkpoint: a resumed run "
            if isinstance(used, LRScheduler):
                raise ConfigError(f"{text}would begin its learning rates anew", hint=_remedy_of(run, name))
            warnings.warn(
                f"{text}would begin with a new one. Pass Trainer(parts={{{name!r}: …}}), or give the hook a state_dict "
                "and a load_state_dict",
                stacklevel=3,
            )


def _remedy_of(run: Run, name: str) -> str:
    if run.plan is not None:
        return "write it as `schedule`, or give the hook a state_dict and a load_state_dict"
    return (
        f"pass it as Trainer(schedule={name}, schedule_by='step') or 'epoch', which also steps it; "
        f"Trainer(parts={{{name!r}: …}}) only saves it"
    )


def _saved(run: Run) -> list[Any]:
    """Return what a checkpoint holds, and what is rebuilt the same without one."""
    own = [*run.parts().values(), run.events, *run.data.values(), *run.model.modules()]
    own += [getattr(hook, "scheduler", None) for hook in run.hooks]
    return own + list(getattr(run.evaluation, "metrics", {}).values())


def _users(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield user-defined hooks, curves, update and loop, each with what to call it; one with a state is left out."""
    for hook in run.hooks:
        if isinstance(hook, Schedule):
            yield from (("the schedule", curve) for curve in hook.curves() if _is_of_user(curve))
        if isinstance(hook, FunctionHook):
            yield f"hook {hook.name}", hook.function
        elif not (is_own(type(hook).__module__) or isinstance(hook, Part)):
            yield f"hook {hook.name}", hook
    for word, part in (("update", run.update), ("loop", run.loop)):
        plain = part.func if isinstance(part, partial) else part
        module = getattr(plain, "__module__", None) or type(plain).__module__
        if not (is_own(module) or isinstance(plain, Part)):
            yield f"the {word} {getattr(plain, '__name__', type(plain).__name__)}", plain


def _used_by(user: Any, depth: int = _DEEPEST) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a function or an object refers to, also those in its lists and mappings, and those of
    functions that it calls."""
    for name, value in _references(user).items():
        items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | set) else ()
        for item in (value, *items):
            yield name, item
            if depth and _is_of_user(item):
                yield from _used_by(item, depth - 1)


def _is_of_user(value: Any) -> bool:
    """Return whether ``value`` is a function of the user, whose references count as those of its caller."""
    if isinstance(value, partial):
        return True
    plain = getattr(value, "__func__", value)
    if not inspect.isfunction(plain) or is_own(plain.__module__):
        return False
    return not is_library(plain.__code__.co_filename)


def _references(user: Any) -> dict[str, Any]:
    if isinstance(user, partial):
        given = {getattr(one, "__name__", type(one).__name__): one for one in (user.func, *user.args)}
        return given | user.keywords
    owner = getattr(user, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        return {type(owner).__name__: owner} | _held(owner) | _references(getattr(user, "__func__", None) or owner)
    if not inspect.isfunction(user):
        methods = [one for one in vars(type(user)).values() if inspect.isfunction(one) and _is_of_user(one)]
        return _held(user) | {name: one for method in methods for name, one in _references(method).items()}
    found, defaults = inspect.getclosurevars(user), inspect.signature(user).parameters.values()
    given = {one.name: one.default for one in defaults if one.default is not one.empty}
    return {**found.globals, **found.nonlocals, **given}


def _held(owner: Any) -> dict[str, Any]:
    return dict(getattr(owner, "__dict__", {}))


def _has_state(used: Any) -> bool:
    """Return whether ``used`` has a state that training changes; a frozen teacher or a loss has none."""
    if isinstance(used, type) or not isinstance(used, Part):
        return False
    if isinstance(used, torch.nn.Module):
        return used.training and any(parameter.requires_grad for parameter in used.parameters())
    return True
