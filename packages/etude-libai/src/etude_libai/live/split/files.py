"""Checkpoints of split tensors: files hold whole ones, so that processes split in any other way read them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from etude_libai.live import topology
from etude_libai.live.split import meshes


def whole_state(value: Any) -> Any:
    """Return a state with whole tensors on rank 0; elsewhere nothing of use. All processes call this together."""
    if isinstance(value, DTensor):
        made = meshes.whole(value)
        return made.cpu() if topology.is_main_process() else None
    if isinstance(value, Mapping):
        kind: type[dict[Any, Any]] = OrderedDict if isinstance(value, OrderedDict) else dict
        return kind((key, whole_state(value[key])) for key in value)
    if type(value) in (list, tuple):
        return type(value)(map(whole_state, value))
    return value


def like(value: Any, own: Any) -> Any:
    """Return a whole tensor of a file as pieces like those of ``own``, if that is split."""
    if not isinstance(own, DTensor) or not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
        return value
    return meshes.pieces(value.to(own.device, own.dtype), own.device_mesh, own.placements)


def scattered(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an optimizer in pieces like its parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    own = dict(zip(numbers, parameters, strict=False))
    return {
        **state,
        "state": {
            number: {
                name: like(value, own[number]) if getattr(value, "shape", None) == own[number].shape else value
                for name, value in values.items()
            }
            if number in own
            else values
            for number, values in state["state"].items()
        },
    }
