"""Strategies of one process and of DDP."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from etude.dialects.mmengine.live.amp import default_device
from etude.dialects.mmengine.live.dist.utils import get_world_size
from etude.dialects.mmengine.live.model.utils import convert_sync_batchnorm, revert_sync_batchnorm
from etude.dialects.mmengine.live.model.wrappers import MMDistributedDataParallel
from etude.dialects.mmengine.live.registry import MODEL_WRAPPERS
from etude.dialects.mmengine.live.strategy.base import BaseStrategy
from etude.dialects.openmm.wrappers import is_wrapper


class SingleDeviceStrategy(BaseStrategy):
    """The model on the device that is there; layers that would unite processes are turned back."""

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        return revert_sync_batchnorm(model.to(default_device()))


class DDPStrategy(BaseStrategy):
    """``model_wrapper`` is a config (default ``MMDistributedDataParallel``), ``sync_bn`` is ``'torch'`` or None."""

    def __init__(
        self, *, model_wrapper: dict[str, Any] | None = None, sync_bn: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.model_wrapper, self.sync_bn = model_wrapper, sync_bn

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        if is_wrapper(model):
            return model
        model = model.to(default_device())
        if self.sync_bn is not None:
            model = convert_sync_batchnorm(model, self.sync_bn)
        devices = [int(os.environ.get("LOCAL_RANK", 0))] if torch.cuda.is_available() else None
        if self.model_wrapper is None:
            return MMDistributedDataParallel(module=model, device_ids=devices, broadcast_buffers=False)
        options = {"type": "MMDistributedDataParallel", **self.model_wrapper}
        made: nn.Module = MODEL_WRAPPERS.build(options, default_args={"module": model, "device_ids": devices})
        return made

    @property
    def world_size(self) -> int:
        return get_world_size()
