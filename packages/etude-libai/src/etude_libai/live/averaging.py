"""Averages gradients over processes for user-defined training steps.

OneFlow distributes LiBai's models over the processes, so a user's trainer only calls ``self.model``. Here the default
trainers wrap the model in DDP. For other trainers, gradients are averaged at the end of each backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from etude.dist.peers import Peers
from etude_libai.live import topology


def average(model: torch.nn.Module) -> Averaging | None:
    """Average the gradients of ``model`` from now on. Return None for a single process, or if DDP averages them."""
    if topology.get_world_size() == 1 or topology.splits() or isinstance(model, DistributedDataParallel):
        return None
    return Averaging(model)


class Averaging:
    """Replaces gradients by their mean over all processes, at the end of every backward pass.

    With gradient accumulation, sums of earlier passes are the same everywhere, so averaging them again changes nothing.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self._peers = model, Peers(topology.get_dist_util().world)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._handles: list[Any] = [
            each.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
            for each in self._parameters
        ]
        self._due = False

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if not self._due:
            self._due = True
            # Runs after the whole backward pass, as in DDP. The hook of a parameter cannot know whether it is the last.
            Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        """Average all gradients. A parameter without one counts as zero, because another process may have used it."""
        self._due = False
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._peers.average(self._parameters)

    def share_buffers(self) -> None:
        """Copy running statistics from rank 0, as DDP does before each forward pass."""
        self._peers.align(self.model)

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
