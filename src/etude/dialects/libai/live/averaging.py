"""Gradients of several processes for a user-defined step, which knows nothing of them.

LiBai's models are spread over the processes by themselves, so a trainer that a script brings calls ``self.model`` and
is done. Here the default trainers wrap the model; for others the gradients are averaged where they come into being.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as torch_dist
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from etude.dialects.libai.live import distributed as dist


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
        self.model = model
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
        size = dist.get_world_size()
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for group in _by_kind([parameter.grad for parameter in self._parameters if parameter.grad is not None]):
            flat = torch.cat([grad.reshape(-1) for grad in group])
            torch_dist.all_reduce(flat)
            means = torch.split(flat / size, [grad.numel() for grad in group])
            for grad, mean in zip(group, means, strict=True):
                grad.copy_(mean.view_as(grad))

    def share_buffers(self) -> None:
        """Running statistics as the first process has them, as a wrapper shares them before each pass."""
        for buffer in self.model.buffers():
            torch_dist.broadcast(buffer, src=0)

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()


def _by_kind(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Tensors that can be sent as one: of one type, on one device."""
    groups: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return list(groups.values())
