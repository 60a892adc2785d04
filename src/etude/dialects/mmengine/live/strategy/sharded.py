"""Several processes that share the parameters out among them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from etude.dialects.mmengine.live.model.sharded import MMFullyShardedDataParallel
from etude.dialects.mmengine.live.registry import MODEL_WRAPPERS
from etude.dialects.mmengine.live.strategy.distributed import DDPStrategy


class FSDPStrategy(DDPStrategy):
    """``model_wrapper`` holds the arguments of ``MMFullyShardedDataParallel``. Checkpoints are whole, in one file."""

    def __init__(self, *, model_wrapper: dict[str, Any] | None = None, **kwargs: Any) -> None:
        kwargs.pop("skip_init_weights", None)
        kwargs.pop("state_dict_cfg", None)
        super().__init__(model_wrapper=model_wrapper, **kwargs)

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        known: dict[str, Any] = {"module": model}
        if not torch.accelerator.is_available():
            known["device_id"] = torch.device("cpu")  # else torch looks for an accelerator and gives up
        if self.model_wrapper is None:
            return MMFullyShardedDataParallel(**known)
        options = {"type": "MMFullyShardedDataParallel", **self.model_wrapper}
        made: nn.Module = MODEL_WRAPPERS.build(options, default_args=known)
        return made
