"""Finds stateful objects that user-defined functions and hooks use and that no checkpoint would hold."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from etude.core.hook import FunctionHook
from etude.core.run import Part, Run
from etude.errors.own_code import is_own


def warn_of_unsaved_state(run: Run) -> None:
    """Warn once per stateful object that a resumed run would begin anew, and say how to save it."""
    saved, reported = _saved(run), set[int]()
    for owner, user in _users(run):
        for name, used in _used_by(user):
            if _has_state(used) and not any(used is one for one in saved) and id(used) not in reported:
                reported.add(id(used))
                warnings.warn(
                    f"{owner} uses {name} ({type(used).__name__}), whose state is in no checkpoint: a resumed run "
                    f"would begin with a new one. {_remedy(name, used)}",
                    stacklevel=3,
                )


def _remedy(name: str, used: Any) -> str:
    if isinstance(used, torch.optim.lr_scheduler.LRScheduler):
        return "Pass it as Trainer(schedule=…), or give the hook a state_dict and a load_state_dict"
    return f"Pass Trainer(parts={{{name!r}: …}}), or give the hook a state_dict and a load_state_dict"


def _saved(run: Run) -> list[Any]:
    """Return what a checkpoint holds, and what is rebuilt the same without one."""
    own = [*run.parts().values(), run.events, *run.data.values(), *run.model.modules()]
    own += [getattr(hook, "scheduler", None) for hook in run.hooks]
    return own + list(getattr(run.evaluation, "metrics", {}).values())


def _users(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield user-defined hooks, update and loop, each with what to call it; one with a state of its own is left out."""
    for hook in run.hooks:
        if isinstance(hook, FunctionHook):
            yield f"hook {hook.name}", hook.function
        elif not (is_own(type(hook).__module__) or isinstance(hook, Part)):
            yield f"hook {hook.name}", hook
    for word, part in (("update", run.update), ("loop", run.loop)):
        plain = part.func if isinstance(part, partial) else part
        module = getattr(plain, "__module__", None) or type(plain).__module__
        if not (is_own(module) or isinstance(plain, Part)):
            yield f"the {word} {getattr(plain, '__name__', type(plain).__name__)}", plain


def _used_by(user: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a function or an object refers to, also those in its lists and mappings."""
    for name, value in _references(user).items():
        yield name, value
        if isinstance(value, list | tuple | set):
            yield from ((name, item) for item in value)
        elif isinstance(value, Mapping):
            yield from ((name, item) for item in value.values())


def _references(user: Any) -> dict[str, Any]:
    owner = getattr(user, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        return {type(owner).__name__: owner} | dict(getattr(owner, "__dict__", {}))
    if not inspect.isfunction(user):
        return dict(getattr(user, "__dict__", {}))
    found = inspect.getclosurevars(user)
    return {**found.globals, **found.nonlocals}


def _has_state(used: Any) -> bool:
    """Return whether ``used`` has a state that training changes; a frozen teacher or a loss has none."""
    if isinstance(used, type) or not isinstance(used, Part):
        return False
    if isinstance(used, torch.nn.Module):
        return used.training and any(parameter.requires_grad for parameter in used.parameters())
    return True
