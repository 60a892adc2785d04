"""One process, one device."""

from __future__ import annotations

from torch import nn

from etude.dialects.mmengine.live.amp import default_device
from etude.dialects.mmengine.live.model.utils import revert_sync_batchnorm
from etude.dialects.mmengine.live.strategy.base import BaseStrategy


class SingleDeviceStrategy(BaseStrategy):
    """The model on the device that is there; layers that would unite processes are turned back."""

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        return revert_sync_batchnorm(model.to(default_device()))
