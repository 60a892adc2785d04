"""Statistics: records the size of gradients and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from etude.core.hook import Hook
from etude.dist.layout.norm import total_norm
from etude.dist.layout.shards import whole

if TYPE_CHECKING:
    from etude.core.run import Run


class Statistics(Hook):
    """Records norms of gradients and weights, of the whole model and with ``per_layer`` of every tensor.

    ``histograms`` adds their distributions for writers that can show them. The norms stay on the device until a record
    is written. Looks at every 50th step unless ``every`` says otherwise.
    """

    every = "50step"

    def __init__(self, per_layer: bool = False, histograms: bool = False) -> None:
        self.per_layer, self.histograms = per_layer, histograms

    def before_update(self, run: Run) -> None:
        named = [(name, p) for name, p in run.model.named_parameters() if p.grad is not None]
        names = [name for name, _ in named]
        self._put(run, "gradient", names, [p.grad for _, p in named if p.grad is not None])
        self._put(run, "weight", names, [p.detach() for _, p in named])

    @torch.no_grad()
    def _put(self, run: Run, kind: str, names: list[str], tensors: list[Tensor]) -> None:
        if not tensors:
            return
        split = run.place.is_split
        norms = [] if split and not self.per_layer else [whole(norm) for norm in torch._foreach_norm(tensors)]
        total = total_norm(tensors, run.place) if split else torch.linalg.vector_norm(torch.stack(norms))
        run.events.put(f"norm/{kind}", total, last=True)
        if self.per_layer:
            for name, norm in zip(names, norms, strict=True):
                run.events.put(f"norm/{kind}/{name}", norm, last=True)
        if self.histograms:
            for name, tensor in zip(names, tensors, strict=True):
                run.events.put_media("histogram", f"{kind}/{name}", whole(tensor.detach()).float().cpu().numpy().copy())
