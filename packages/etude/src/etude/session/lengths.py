"""Reads from a built run what its plan does not say: lengths, groups, hooks per point, size of a checkpoint."""

from __future__ import annotations

from typing import Any

import torch

from etude import dialects
from etude.core.hook import Periodic
from etude.core.run import Run, named_hooks
from etude.dialects.rehearsal import values_of
from etude.hooks.freeze import Freeze
from etude.preview.explain import Actor, Facts, GroupFact
from etude.units import parse

#: How many numbers an optimizer remembers of each parameter; others two.
_REMEMBERED = {"SGD": 1, "Adagrad": 1, "RMSprop": 1}
_AVERAGES = ("Ema", "Swa", "EMAHook", "ModelEmaHook")
#: Bytes in addition to the numbers of a tensor: its name, shape and place.
_HEADER = 400


def facts_of(run: Run) -> Facts:
    """Return the facts for ``explain``, from a run that is built and has not started."""
    return Facts(
        steps_per_epoch=run.steps_per_epoch,
        total_steps=run.total_steps,
        actors=tuple(_actor(name, hook) for name, hook in named_hooks(run.hooks)),
        groups=tuple(_groups(run)),
        frozen=tuple(hook.describe() for hook in run.hooks if isinstance(hook, Freeze)),
        eval_batches=length_of(run.data.get("val")),
        batches=length_of(run.data.get("train")),
        device=next((parameter.device.type for parameter in run.model.parameters()), ""),
        checkpoint_bytes=checkpoint_bytes(run),
    )


def checkpoint_bytes(run: Run) -> int:
    """Estimate the size of a checkpoint: parameters, buffers, optimizer state, and the rest."""
    tensors = [tensor for tensor in run.model.state_dict().values() if isinstance(tensor, torch.Tensor)]
    averaged = sum(1 for hook in run.hooks if hook.name in _AVERAGES)
    weights = sum(_with_header(tensor) for tensor in tensors) * (1 + averaged)
    remembered = sum(
        _with_header(p) * _REMEMBERED.get(type(optimizer).__name__, 2)
        for optimizer in run.optimizers.values()
        for group in optimizer.param_groups
        for p in group["params"]
    )
    return int(weights + remembered + dialects.of(run.plan).bytes_beside(run))


def _with_header(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size() + _HEADER


def _actor(name: str, hook: Any) -> Actor:
    return Actor(
        name=name,
        priority=hook.priority,
        points=tuple(hook.calls()),
        every=None if hook.every is None else parse(hook.every),
        acting=isinstance(hook, Periodic),
        at_end=isinstance(hook, Periodic) and hook.at_end,
    )


def _groups(run: Run) -> list[GroupFact]:
    parameters = {id(parameter): name for name, parameter in run.model.named_parameters()}
    return [
        GroupFact(
            optimizer=name,
            name=_group_name(group, index, parameters),
            tensors=len(group["params"]),
            numbers=sum(p.numel() for p in group["params"]),
            values=values_of(group),
        )
        for name, optimizer in run.optimizers.items()
        for index, group in enumerate(optimizer.param_groups)
    ]


def _group_name(group: dict[str, Any], index: int, parameters: dict[int, str]) -> str:
    """Return the group's own name, that of its only parameter, or its number."""
    only = parameters.get(id(group["params"][0]), "") if len(group["params"]) == 1 else ""
    return str(group.get("name", only or index))


def length_of(loader: Any) -> int | None:
    """Return the batches of an epoch; None for a stream, 0 for no loader at all."""
    try:
        return 0 if loader is None else len(loader)
    except TypeError:
        return None
