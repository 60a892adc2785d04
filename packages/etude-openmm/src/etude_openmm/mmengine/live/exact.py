"""Saves what an exact resume needs beside MMEngine's layout: generators, the position in the data, partial gradients.

A checkpoint carries it in ``meta["etude"]``, which MMEngine does not look at: one entry per process, because each has
its own generators, and gradients of its own in an unfinished group.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
from mmengine.dataset.sampler import DefaultSampler, InfiniteSampler
from torch.distributed import distributed_c10d

from etude.core.run import is_part, numbered
from etude.data.resume import Snapshot
from etude_openmm.mmengine import files
from etude_openmm.mmengine.live.collate import on_cpu
from etude_openmm.shared.state import is_wrapper

KEY = "etude"


def share_of(runner: Any) -> dict[str, Any]:
    """Return what this process alone knows."""
    loop = runner.train_loop
    passes = getattr(loop, "passes", None)
    return {
        "generators": Snapshot.take().state_dict(),
        "validated": bool(getattr(loop, "validated", False)),
        "data": None if passes is None else passes.state_dict(),
        "wrappers": {name: unfinished(wrapper) for name, wrapper in named(runner.optim_wrapper)},
        "hooks": hooks_of(runner),
        "buffers": on_cpu(_own_buffers(runner)),
    }


def take(runner: Any, share: Mapping[str, Any]) -> None:
    """Put back what :func:`share_of` gave, but for the generators, which come right before the next step."""
    passes = getattr(runner.train_loop, "passes", None)
    runner.train_loop.validated = bool(share.get("validated"))
    if passes is not None and share.get("data"):
        passes.load_state_dict(share["data"])
    for name, wrapper in named(runner.optim_wrapper):
        put_back(wrapper, share.get("wrappers", {}).get(name, {}))
    take_hooks(runner, share.get("hooks") or {})
    with torch.no_grad():
        for name, buffer in _own_buffers(runner).items():
            if name in share.get("buffers", {}):
                buffer.copy_(share["buffers"][name])


def has_one_order(loader: Any) -> bool:
    """Return whether the samplers of all processes take turns in one order, whatever the number of processes."""
    return type(getattr(loader, "sampler", None)) in (DefaultSampler, InfiniteSampler)


def hooks_of(runner: Any) -> dict[str, Any]:
    """Return the states of those hooks that have one."""
    return {name: hook.state_dict() for name, hook in _stateful(runner.hooks)}


def take_hooks(runner: Any, states: Mapping[str, Any]) -> None:
    """Put back what :func:`hooks_of` gave."""
    for name, hook in _stateful(runner.hooks):
        if name in states:
            hook.load_state_dict(states[name])


def groups_of(optim_wrapper: Any) -> dict[str, Any]:
    """Return the options of all parameter groups, the virtual one too: a plateau scheduler changes them."""
    return {
        name: [{key: value for key, value in group.items() if key != "params"} for group in wrapper.param_groups]
        for name, wrapper in named(optim_wrapper)
    }


def take_groups(optim_wrapper: Any, options: Mapping[str, Any]) -> None:
    """Put back what :func:`groups_of` gave."""
    for name, wrapper in named(optim_wrapper):
        for group, saved in zip(wrapper.param_groups, options.get(name, ()), strict=False):
            group.update(saved)


def _own_buffers(runner: Any) -> dict[str, Any]:
    """Return the running statistics of this process. Those of the first one are in the weights of the checkpoint."""
    return dict(runner.model.module.named_buffers()) if runner.rank > 0 and is_wrapper(runner.model) else {}


def named(wrapper: Any) -> list[tuple[str, Any]]:
    """Return the wrappers of several optimizers by name; a single one has none."""
    return list(wrapper.items()) if hasattr(wrapper, "items") else [("", wrapper)]


def _stateful(hooks: list[Any]) -> list[tuple[str, Any]]:
    """Return the hooks that have a state, with names that are unique within the run."""
    named = zip(numbered(type(hook).__name__ for hook in hooks), hooks, strict=True)
    return [(name, hook) for name, hook in named if is_part(hook)]


def unfinished(wrapper: Any) -> dict[str, Any]:
    """Return how many batches were differentiated and, inside a group, what they have added up to."""
    count = getattr(wrapper, "inner_count", None)
    if count is None or wrapper.should_update():
        return {"count": count}
    return {"count": count, "grads": {n: on_cpu(p.grad) for n, p in enumerate(_params(wrapper)) if p.grad is not None}}


def put_back(wrapper: Any, state: Mapping[str, Any]) -> None:
    """Put back what :func:`unfinished` gave."""
    if state.get("count") is not None:  # user-defined wrappers need not count
        wrapper._inner_count = int(state["count"])
    params = _params(wrapper)
    for number, grad in state.get("grads", {}).items():
        params[int(number)].grad = grad.to(params[int(number)].device)


def _params(wrapper: Any) -> list[torch.nn.Parameter]:
    return [param for group in wrapper.optimizer.param_groups for param in group["params"]]


#: Seconds for the other processes to leave their shares, and for the first one to save.
SHARING, SAVING = 10.0, 25.0


def shares(runner: Any, own: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return on rank 0 what each process alone knows, or None if one does not answer in time. None on others."""
    store: Any = distributed_c10d._get_default_store()
    names = [os.path.join(runner.work_dir, ".etude", f"share-{rank}.pth") for rank in range(runner.world_size)]
    keys = [f"etude/share/{rank}/{runner.iter}" for rank in range(runner.world_size)]
    if runner.rank > 0:
        files.write(names[runner.rank], files.plain(own))
        store.set(keys[runner.rank], "there")
        return None
    try:
        store.wait(keys[1:], timedelta(seconds=SHARING))
        return [own, *(files.read(name) for name in names[1:])]
    except Exception as error:
        runner.logger.warning(f"not all processes have stopped after iteration {runner.iter}: {error}")
        return None
    finally:
        for name in names[1:]:
            files.remove(name)


def wait_for_save(runner: Any) -> None:
    """Wait for the first process to save: a launcher kills the other processes when it sees one gone."""
    store: Any = distributed_c10d._get_default_store()
    if runner.rank == 0:
        store.set("etude/saved", "")
        return
    with suppress(Exception):
        store.wait(["etude/saved"], timedelta(seconds=SAVING))
