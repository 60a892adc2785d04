"""The whole state of a model that is shared out over processes, in the layout of one that is not.

All processes have to call these functions: each brings its part.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


def is_sharded(model: Any) -> bool:
    """Return whether ``model`` is shared out by torch's FSDP; asking imports nothing."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(model, fsdp.FullyShardedDataParallel)


def weights_of(model: Any) -> dict[str, Any]:
    """All weights, by the names that the model without its wrappers has."""
    with _whole(model):
        state: dict[str, Any] = model.state_dict()
    return state


def load_weights(model: Any, state: Mapping[str, Any], *, strict: bool) -> Any:
    """Give every process its part of ``state``."""
    with _whole(model):
        return model.load_state_dict(state, strict=strict)


def optimizer_state(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state as torch saves one of a model in one piece: parameters by number."""
    from torch.distributed.fsdp import OptimStateKeyType

    with _whole(model):
        state = type(model).optim_state_dict(model, optimizer)
    numbered: dict[str, Any] = type(model).rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, model)
    return numbered


def own_optimizer_state(model: Any, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """This process's part of what :func:`optimizer_state` gave."""
    from torch.distributed.fsdp import OptimStateKeyType

    named = type(model).rekey_optim_state_dict(dict(state), OptimStateKeyType.PARAM_NAME, model)
    with _whole(model):
        own: dict[str, Any] = type(model).optim_state_dict_to_load(model, optimizer, named)
    return own


@contextmanager
def _whole(model: Any) -> Iterator[None]:
    from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType

    moved = torch.cuda.is_available()  # what is on the CPU already would be handed out without a copy
    weights = FullStateDictConfig(offload_to_cpu=moved)
    optimizer = FullOptimStateDictConfig(offload_to_cpu=moved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with type(model).state_dict_type(model, StateDictType.FULL_STATE_DICT, weights, optimizer):
            yield
