"""Averages the gradients of several processes for a user-defined step, which does not do it itself.

OneFlow spreads LiBai's models over the processes, so a trainer of a script only calls ``self.model``. Here the default
trainers wrap the model in DDP. For other trainers the gradients are averaged at the end of each backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from etude.dialects.libai.live import distributed as dist
from etude.dist.peers import Peers


def average(model: torch.nn.Module) -> Averaging | None:
    """Average the gradients of ``model`` from now on; None where nobody else trains it, or a wrapper does it."""
    if dist.get_world_size() == 1 or isinstance(model, DistributedDataParallel):
        return None
    return Averaging(model)


class Averaging:
    """Replaces the gradients by their mean over all processes, at the end of every backward pass.

    Sums of earlier passes that wait for an update are the same everywhere: averaging them again changes nothing.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self._peers = model, Peers(dist.get_dist_util().world)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._handles: list[Any] = [
            each.register_post_accumulate_grad_hook(self._filled)  # type: ignore[no-untyped-call]
            for each in self._parameters
        ]
        self._due = False

    def _filled(self, parameter: torch.Tensor) -> None:
        if not self._due:
            self._due = True
            # Called when the whole backward pass is over, as DDP's last bucket is; no hook of a parameter is the last.
            Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        """Count a parameter that this process did not use as one with zero gradient: another may have used it."""
        self._due = False
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._peers.average(self._parameters)

    def share_buffers(self) -> None:
        """Copy running statistics from the first process, as DDP does before each forward pass."""
        self._peers.align(self.model)

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
