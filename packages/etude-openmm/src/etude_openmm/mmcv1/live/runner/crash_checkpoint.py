"""Saves a checkpoint after an exception if a resumed run can end in the same bits; else logs what is to be repeated."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from etude.core.hook import is_builtin
from etude.data.resume import own_states
from etude.data.torch_loader import passes
from etude.errors import DataError, EtudeError, SaveError
from etude.units import counted
from etude_openmm.mmcv1.live.hooks.hook import Hook
from etude_openmm.mmcv1.live.hooks.optimizer_hook import OptimizerHook
from etude_openmm.mmcv1.live.runner import exact_resume
from etude_openmm.mmcv1.live.runner.log_buffer import LogBuffer
from etude_openmm.shared.priority import Priority

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

_STAGES = {"after_step": "after_train_iter", "after_epoch": "after_train_epoch", "before_epoch": "stopped"}
_UPDATE = "it was raised inside an update"


def leave(runner: BaseRunner, error: Exception) -> None:
    """Save what was trained before ``error``, or log why not. As in mmcv, the runner of a script saves nothing."""
    engine, where = runner.engine, runner._position
    reached = max(engine.done, engine.step)
    if engine.plan is None or runner.work_dir is None or runner._rank != 0 or _is_saved(runner, error, reached):
        return
    parts = _parts(runner, error)
    if not isinstance(parts, str):
        parts = _save(runner, f"stopped_iter_{reached}.pth", parts)
    if isinstance(parts, str):
        name, done = where.saved
        newest = f"the newest checkpoint is {os.path.basename(name)}" if name else "there is no checkpoint yet"
        again = f"{counted(reached - done, 'iteration')} {'is' if reached - done == 1 else 'are'} to be repeated"
        runner.logger.error("%s; %s%s", newest, again, f": {parts}" if parts else "")


def _is_saved(runner: BaseRunner, error: Exception, reached: int) -> bool:
    """Return whether there is a checkpoint of this moment. One that a hook wrote in the middle of a stage is not: it
    does not know which hooks are left."""
    where = runner._position
    inside = getattr(getattr(error, "etude_site", None), "point", "") == "after_step" and where.unsettled
    return reached < where.saved[1] or (reached == where.saved[1] and not inside)


def _save(runner: BaseRunner, name: str, parts: dict[str, Any]) -> str | dict[str, Any]:
    where, stage = runner._position, runner._position.stage
    where.stage, where.parts = parts["stage"], parts
    try:
        runner._write_checkpoint(str(runner.work_dir), name, True, None, True)
    except SaveError as error:
        return str(error)
    finally:
        where.stage, where.parts = stage, {}
    runner.logger.error("what was trained is saved as %s", name)
    return parts


def _parts(runner: BaseRunner, error: Exception) -> dict[str, Any] | str:
    """Return what differs from the usual exact state, or why there is no state to resume from."""
    if runner._world_size > 1:
        return "each process would have to save its own part"
    site = getattr(error, "etude_site", None)
    if site is None:
        return _before_batch(runner) if isinstance(getattr(error, "etude_reported", None), DataError) else _UPDATE
    hook = getattr(site.actor, "hook", None)
    if isinstance(error, EtudeError) or hook not in runner._hooks:
        return ""
    if site.point not in _STAGES:
        return "the next batch was drawn already" if site.point == "before_step" else _UPDATE
    if hasattr(hook, "state_dict") and not is_builtin(hook):
        return f"{type(hook).__name__} keeps a state of its own that may have changed"
    place = runner._hooks.index(hook)
    if site.point == "before_epoch":
        return {"stage": "stopped", "turn": list(runner._position.entry), "passes": []}
    if site.point == "after_step" and any(map(_is_update, runner._hooks[place:])):
        return _UPDATE
    return {"stage": _STAGES[site.point], "cut": _cut(runner, place)}


def _is_update(hook: Hook) -> bool:
    """Return whether ``hook`` takes the optimizer's step: one of mmcv's, or one in their place."""
    return isinstance(hook, OptimizerHook) or getattr(hook, "priority", 50) == Priority.ABOVE_NORMAL.value


def _before_batch(runner: BaseRunner) -> dict[str, Any] | str:
    """Return the state before a batch that could not be drawn, if drawing it has moved no generator of this process."""
    loaders = getattr(runner, "_iter_loaders", None)
    current = getattr(runner.data_loader, "_pass", None) if loaders else getattr(runner, "_pass", None)
    if current is None or not getattr(current.loader, "num_workers", 0):
        return "the samples of that batch may have drawn random numbers (with workers_per_gpu they do so elsewhere)"
    parts: dict[str, Any] = {"stage": "stopped", "turn": list(runner._position.entry)}
    if current.taken:
        return parts
    if loaders:
        return "that batch was the first of a pass"
    own = [current.own if data is current.loader else own_states(data) for data in runner._loaders]
    workers = [passes.worker_states(data) for data in runner._loaders]
    for data, state in zip(runner._loaders, workers, strict=True):
        if data is current.loader and state:
            state["started"] = current.lasting
    return {**parts, "passes": [], "rng": current.start.state(), "loaders": own, "workers": workers}


# -- the rest of a stage ----------------------------------------------------------------------------------------------


def _cut(runner: BaseRunner, place: int) -> dict[str, Any]:
    """Return which hooks of the stage have not acted yet, and what they will look at, as far as that is plain data."""
    log = runner.log_buffer
    return {
        "waiting": _names(runner, place),
        "inner_iter": runner._inner_iter,
        "outputs": _plain_items(runner.outputs) if isinstance(runner.outputs, Mapping) else None,
        "log": [_plain_items(log.val_history), _plain_items(log.n_history), _plain_items(log.output), bool(log.ready)],
    }


def _names(runner: BaseRunner, place: int) -> list[str]:
    return [name for name, _ in runner._named_hooks()[place:]]


def finish(runner: BaseRunner, state: dict[str, Any]) -> None:
    """Finish the stage whose hook raised: call that hook and those after it."""
    stage, cut = state["stage"], state["cut"]
    runner.logger.info("%s was not finished when the run ended; the hooks that were left are called", stage)
    runner.mode, runner.data_loader = "train", runner._train_loader()
    runner._inner_iter, runner.outputs = cut["inner_iter"], cut["outputs"]
    _fill(runner.log_buffer, cut["log"])
    runner.model.train()
    with counted_back(runner, stage):
        runner._position.finishing = state
        for name, hook in runner._named_hooks():
            if name in cut["waiting"]:
                getattr(hook, stage)(runner)
        if runner._position.unsettled:
            runner._settle()
        runner._position.finishing = None


@contextmanager
def counted_back(runner: BaseRunner, stage: str) -> Iterator[None]:
    """Set the counters to what hooks of that stage see, inside this context."""
    counter = "epoch" if stage == "after_train_epoch" else "step"
    setattr(runner.engine, counter, getattr(runner.engine, counter) - 1)
    try:
        yield
    finally:
        setattr(runner.engine, counter, getattr(runner.engine, counter) + 1)


def within(runner: BaseRunner, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exact state for a save by a hook that :func:`finish` calls: the same place, fewer hooks left."""
    found = next((place for place, hook in enumerate(runner._hooks) if hook is runner.saver), len(runner._hooks))
    left = {**state["cut"], "waiting": _names(runner, found + 1)}
    return {
        **state,
        "id": exact_resume.new_id(),
        "states": runner._hook_states(),
        "rng": exact_resume.rng_state(),
        "cut": left,
    }


def _fill(buffer: LogBuffer, log: list[Any]) -> None:
    buffer.clear()
    values, weights, output, buffer.ready = log
    buffer.val_history, buffer.n_history = OrderedDict(values), OrderedDict(weights)
    buffer.output = OrderedDict(output)


def _plain_items(items: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in items.items():
        with suppress(TypeError):
            found[str(name)] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    """Return nested numbers, texts and tensors as a file can hold them; raise ``TypeError`` for other values."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(type(value).__name__)
