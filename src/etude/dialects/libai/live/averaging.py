"""Gradients of several processes for a user-defined step, which knows nothing of them.

LiBai's models are spread over the processes by themselves, so a trainer that a script brings calls ``self.model`` and
is done. Here the default trainers wrap the model; for others the gradients are averaged where they come into being.
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
    """At the end of every backward pass the gradients of all processes become their mean.

    What waits for an update since earlier passes is the same everywhere, so averaging it once more changes nothing.
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
        """A parameter that this process did not use counts as one without a slope: another may have used it."""
        self._due = False
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._peers.average(self._parameters)

    def share_buffers(self) -> None:
        """Running statistics as the first process has them, as a wrapper shares them before each pass."""
        self._peers.align(self.model)

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
