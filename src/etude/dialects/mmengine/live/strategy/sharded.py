"""Several processes that share the parameters out among them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import StateDictType

from etude.dialects.mmengine.live.model.sharded import MMFullyShardedDataParallel
from etude.dialects.mmengine.live.strategy.base import DDPStrategy
from etude.dialects.openmm.registries.root import FUNCTIONS, MODEL_WRAPPERS

_FORMS = {"full": StateDictType.FULL_STATE_DICT, "local": StateDictType.LOCAL_STATE_DICT}


class FSDPStrategy(DDPStrategy):
    """``model_wrapper`` holds the arguments of ``MMFullyShardedDataParallel``. Checkpoints are whole, in one file.

    ``state_dict_cfg`` is checked, but changes nothing of that. ``activation_checkpointing`` is a dict with
    ``check_fn``, which says of a module whether its activations are computed again.
    """

    def __init__(
        self,
        *,
        model_wrapper: dict[str, Any] | None = None,
        skip_init_weights: bool = False,
        state_dict_cfg: str | dict[str, Any] = "local",
        activation_checkpointing: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(model_wrapper=model_wrapper, **kwargs)
        if not isinstance(skip_init_weights, bool):
            raise TypeError(f"skip_init_weights must be a boolean, but got {type(skip_init_weights)}")
        self.skip_init_weights = skip_init_weights
        self.state_dict_type = _form(state_dict_cfg)
        self.activation_checkpointing = activation_checkpointing

    def _init_model_weights(self, model: nn.Module) -> nn.Module:
        return model if self.skip_init_weights else super()._init_model_weights(model)

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        wrapped = self._sharded(model)
        if self.activation_checkpointing is not None:
            options = dict(self.activation_checkpointing)
            check = _function(options.pop("check_fn", None))
            apply_activation_checkpointing(wrapped, check_fn=check, **options)
        return wrapped

    def _sharded(self, model: nn.Module) -> nn.Module:
        known: dict[str, Any] = {"module": model}
        if not torch.accelerator.is_available():
            known["device_id"] = torch.device("cpu")  # else torch looks for an accelerator and gives up
        if self.model_wrapper is None:
            return MMFullyShardedDataParallel(**known)
        options = {"type": "MMFullyShardedDataParallel", **self.model_wrapper}
        made: nn.Module = MODEL_WRAPPERS.build(options, default_args=known)
        return made


def _form(state_dict_cfg: Any) -> StateDictType:
    """The form of checkpoints that was asked for."""
    if isinstance(state_dict_cfg, str):
        if state_dict_cfg not in _FORMS:
            raise ValueError(f"FSDP only supports `full` and `local` state_dict_type, but got {state_dict_cfg}")
        return _FORMS[state_dict_cfg]
    if not isinstance(state_dict_cfg, dict):
        raise TypeError(f"state_dict_cfg should be a `str` or a `dict`, but got {type(state_dict_cfg)}")
    kind = state_dict_cfg.get("state_dict_type", StateDictType.LOCAL_STATE_DICT)
    kind = StateDictType[kind] if isinstance(kind, str) else kind
    if not isinstance(kind, StateDictType):
        raise TypeError(f"state_dict_type must be StateDictType, but got {type(kind)}")
    return kind


def _function(given: Any) -> Any:
    """A function, its name in FUNCTIONS, or ``dict(type=…, **arguments)``."""
    options: dict[str, Any] = {}
    if isinstance(given, dict):
        options = dict(given)
        given = options.pop("type")
    found = FUNCTIONS.get(given) if isinstance(given, str) else given
    if not callable(found):
        raise TypeError(f"`check_fn` must be a callable function, but got {given!r}")
    return partial(found, **options) if options else found
