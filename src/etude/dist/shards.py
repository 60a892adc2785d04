"""States of parameters in shards: whole for a checkpoint, in shards again for a run, whatever world it has.

A checkpoint holds whole tensors by the model's own names. So a run goes on in another number of processes, or under
another strategy, from the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def whole(value: Any) -> Any:
    """``value`` with every sharded tensor in it whole. All ranks call it, for they have a piece each."""
    if isinstance(value, torch.Tensor):
        return value.full_tensor() if hasattr(value, "full_tensor") else value
    if isinstance(value, Mapping):
        made = {key: whole(item) for key, item in value.items()}
        return made if any(made[key] is not value[key] for key in made) else value
    if type(value) in (list, tuple):
        items = [whole(item) for item in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def is_sharded(model: torch.nn.Module) -> bool:
    """Return whether FSDP holds the parameters in shards."""
    return any(hasattr(param, "full_tensor") for param in model.parameters())


def like(tensor: Any, param: Any) -> Any:
    """``tensor`` in the shards that ``param`` has, when it has any and their shapes are the same."""
    if not hasattr(param, "full_tensor") or not isinstance(tensor, torch.Tensor) or hasattr(tensor, "full_tensor"):
        return tensor
    if tensor.shape != param.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(param.device), param.device_mesh, param.placements, src_data_rank=None)


def scattered(run: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """A state of whole tensors as the parts of ``run`` hold them."""
    if not is_sharded(run.model):
        return dict(state)
    named = dict(run.model.named_parameters())
    made = dict(state)
    made["model"] = {name: like(tensor, named.get(name)) for name, tensor in state["model"].items()}
    for name, optimizer in run.optimizers.items():
        part = f"optimizer.{name}" if name else "optimizer"
        if part in state:
            made[part] = _optimizer(optimizer, state[part])
    update = state.get("update")
    if isinstance(update, Mapping) and update.get("grads"):
        grads = {key: like(grad, run.update.params[int(key)]) for key, grad in update["grads"].items()}
        made["update"] = {**update, "grads": grads}
    for part, value in state.items():
        if part.startswith("hook.") and isinstance(value, Mapping) and isinstance(value.get("average"), Mapping):
            average = {name: like(tensor, named.get(name)) for name, tensor in value["average"].items()}
            made[part] = {**value, "average": average}
    return made


def _optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    order = [index for group in state["param_groups"] for index in group["params"]]
    by_index = dict(zip(order, params, strict=False))
    own = {
        index: {key: like(value, by_index.get(index)) for key, value in values.items()}
        for index, values in state["state"].items()
    }
    return {**state, "state": own}
