"""FSDP for MMEngine models, configured by plain values."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)

from etude_openmm.mmengine.live.collate import function_of
from etude_openmm.mmengine.live.model.base_model import BaseModel, learn
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper
from etude_openmm.shared.state import add_wrapper


class MMFullyShardedDataParallel(FullyShardedDataParallel):
    """FSDP with ``train_step``. Enums, policies, dtypes and ignored modules may be given by name."""

    def __init__(
        self,
        module: nn.Module,
        process_group: Any = None,
        sharding_strategy: str | ShardingStrategy | None = None,
        cpu_offload: bool | CPUOffload | None = None,
        auto_wrap_policy: str | dict[str, Any] | Any = None,
        backward_prefetch: str | BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: dict[str, Any] | MixedPrecision | None = None,
        param_init_fn: Any = None,
        use_orig_params: bool = True,
        ignored_modules: Iterable[nn.Module | str] | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(sharding_strategy, str):
            sharding_strategy = ShardingStrategy[sharding_strategy]
        if isinstance(backward_prefetch, str):
            backward_prefetch = BackwardPrefetch[backward_prefetch]
        if isinstance(cpu_offload, bool):
            cpu_offload = CPUOffload(offload_params=cpu_offload)
        super().__init__(
            module=module,
            process_group=process_group,
            sharding_strategy=sharding_strategy,
            cpu_offload=cpu_offload,
            auto_wrap_policy=_function(auto_wrap_policy, "auto_wrap_policy"),
            backward_prefetch=backward_prefetch,
            mixed_precision=_precision(mixed_precision),
            param_init_fn=_function(param_init_fn, "param_init_fn"),
            use_orig_params=use_orig_params,
            ignored_modules=_modules(module, ignored_modules),
            **kwargs,
        )

    def train_step(self, data: Any, optim_wrapper: OptimWrapper) -> Any:
        return learn(self, self.module, data, optim_wrapper)[1]

    def val_step(self, data: Any) -> Any:
        data = self.module.data_preprocessor(data, False)  # type: ignore[operator]
        return self._run_forward(data, mode="predict")

    test_step = val_step
    _run_forward = BaseModel._run_forward


add_wrapper(MMFullyShardedDataParallel)


def _function(given: Any, what: str) -> Any:
    """Return what a name or a config stands for; torch's policies need not be callable."""
    return function_of(given, what) if isinstance(given, str | dict) else given


def _precision(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return MixedPrecision(**{key: getattr(torch, v) if isinstance(v, str) else v for key, v in given.items()})


def _modules(module: nn.Module, given: Iterable[nn.Module | str] | None) -> list[nn.Module] | None:
    if given is None:
        return None
    return [module.get_submodule(one) if isinstance(one, str) else one for one in given]


def is_sharded(model: Any) -> bool:
    """Return whether ``model`` is wrapped by FSDP, without importing FSDP."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(model, fsdp.FullyShardedDataParallel)


def weights_of(model: Any) -> dict[str, Any]:
    """Return all weights, unsharded, by their names in the model without wrappers."""
    with _unsharded(model):
        state: dict[str, Any] = model.state_dict()
    return state


def load_weights(model: Any, state: Mapping[str, Any], *, strict: bool) -> Any:
    """Load ``state`` into the model; every process takes its shard."""
    with _unsharded(model):
        return model.load_state_dict(state, strict=strict)


def optimizer_state(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the unsharded state of the optimizer with parameters by number, as without FSDP."""
    from torch.distributed.fsdp import OptimStateKeyType

    with _unsharded(model):
        state = type(model).optim_state_dict(model, optimizer)
    numbered: dict[str, Any] = type(model).rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, model)
    return numbered


def own_optimizer_state(model: Any, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return this process's shard of a state that :func:`optimizer_state` returned."""
    from torch.distributed.fsdp import OptimStateKeyType

    named = type(model).rekey_optim_state_dict(dict(state), OptimStateKeyType.PARAM_NAME, model)
    with _unsharded(model):
        own: dict[str, Any] = type(model).optim_state_dict_to_load(model, optimizer, named)
    return own


@contextmanager
def _unsharded(model: Any) -> Iterator[None]:
    from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType

    moved = torch.cuda.is_available()  # on the CPU, offloading would return the weights themselves, not a copy
    weights = FullStateDictConfig(offload_to_cpu=moved)
    optimizer = FullOptimStateDictConfig(offload_to_cpu=moved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with type(model).state_dict_type(model, StateDictType.FULL_STATE_DICT, weights, optimizer):
            yield
