"""SyncBuffers: the same buffers in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import distributed

from etude.core.hook import Hook

if TYPE_CHECKING:
    from etude.core.run import Run


class SyncBuffers(Hook):
    """After every epoch, the mean over processes of floating-point buffers (statistics of batch norms).

    A process alone has nothing to do.
    """

    @torch.no_grad()
    def after_epoch(self, run: Run) -> None:
        if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
            return
        buffers = [buffer for buffer in run.model.buffers() if buffer.is_floating_point()]
        for buffer in buffers:
            distributed.all_reduce(buffer)
        torch._foreach_div_(buffers, float(distributed.get_world_size()))
