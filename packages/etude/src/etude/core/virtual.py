"""Trains and evaluates with virtual ranks, so that any number of processes comes to the same bits.

A batch is computed in as many parts as there are virtual ranks, whichever process a part belongs to. What a part draws
follows from (seed, step, virtual rank), and gradients, losses and metrics are put together in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn

from etude.core.describe import FORWARD
from etude.core.evaluation import Evaluation, count_of
from etude.core.forward import Forward
from etude.core.returned import wrong_loss
from etude.core.run import Run
from etude.core.update import Step
from etude.data.order import Parts
from etude.data.resume import Snapshot
from etude.data.seeds import VIRTUAL, mix, seed_everywhere
from etude.dist import fixed_sum, group
from etude.dist.layout.mesh import Mesh
from etude.errors import ConfigError, ReturnError


class VirtualStep(Step):
    """Computes the gradient of a batch part by part and adds them in a fixed order.

    Hooks at ``after_forward`` act when all gradients are there, and find no output of the model in ``run.outputs``.
    """

    def __init__(
        self, forward: Forward, optimizers: Mapping[str, Any], *, mesh: Mesh, seed: int, **settings: Any
    ) -> None:
        super().__init__(forward, optimizers, **settings)
        self.count, self.first, self.seed = mesh.virtual, mesh.rank * mesh.parts, seed
        self._kept: dict[Tensor, Tensor] = {}
        wrong = [name for name, module in forward.model.named_modules() if isinstance(module, nn.SyncBatchNorm)]
        if wrong:
            raise ConfigError(
                f"parallel.virtual_ranks: {wrong[0]} is a SyncBatchNorm, which looks at the batch of all processes",
                hint="use BatchNorm: each virtual rank normalises its own part",
            )

    def __call__(self, run: Run, batch: Parts) -> dict[str, Any]:
        if run.peers is not None:
            run.peers.ask(run.step)
        size = self._group_size(run)
        held = [param.grad for param in self.params]
        names: list[str] = []
        flat, notes = fixed_sum.Branch(), fixed_sum.Branch()
        generators, buffers = Snapshot.take(), Buffers(self.forward.model)
        try:
            for number, (part, weight) in enumerate(zip(batch, batch.weights, strict=True)):
                seed_everywhere(mix(self.seed, self.first + number, run.step, VIRTUAL))
                for param in self.params:
                    param.grad = None
                losses = self._part(run, part, weight / self.count, size)
                names = list(losses)
                made, noted = self._taken(losses, weight / self.count, buffers.put_back())
                flat.add(made)
                notes.add(noted)
        finally:
            generators.restore()
        # Notes are sums of losses, how many parts gave each parameter a gradient, and how many changed each buffer.
        noted, made = fixed_sum.over_ranks(notes.sum), fixed_sum.over_ranks(flat.sum)
        counts = noted[len(names) :].tolist()
        buffers.use(counts[len(self.params) :])
        if run.peers is not None:
            run.peers.read_votes()
        values = noted[: len(names)].to(torch.float32)
        totals = dict(zip(names, values.unbind(), strict=True))
        loss = reduce(add, totals.values())
        self._give(made, counts[: len(self.params)], held)
        run.acting = None
        run.outputs = {"losses": totals, "loss": loss, "output": None, "target": None}
        run.hooks.after_forward(run)
        if not self._guard.is_finite(loss):
            self._drop(run, totals, loss)
            return run.outputs  # type: ignore[no-any-return]
        self.pending += 1
        self._record(run, totals, loss)
        if self.pending >= size:
            self.apply(run)
        return run.outputs  # type: ignore[no-any-return]

    def _part(self, run: Run, part: Any, weight: float, size: int) -> dict[str, Tensor]:
        run.acting = FORWARD
        with self.autocast():
            losses, _, _ = self.forward(part)
        loss = reduce(add, losses.values())
        if loss.ndim:
            raise ReturnError(wrong_loss(run, losses))
        self.backward(loss * (weight / size))
        return losses

    def _taken(self, losses: Mapping[str, Tensor], weight: float, moved: list[bool]) -> tuple[Tensor, Tensor]:
        """Return the gradients of a part as one tensor; and its losses, which parameters have a gradient, and which
        buffers have ``moved``."""
        grads = [param.grad for param in self.params]
        parts = [
            torch.zeros_like(param).flatten() if grad is None else grad.to(param.dtype).flatten()
            for param, grad in zip(self.params, grads, strict=True)
        ]
        values = torch.stack([value.detach().double() * weight for value in losses.values()])
        flags = [*(grad is not None for grad in grads), *moved]
        return torch.cat(parts), torch.cat([values, torch.tensor(flags, dtype=torch.float64, device=values.device)])

    def _give(self, made: Tensor, counts: list[float], held: list[Tensor | None]) -> None:
        """Give each parameter its gradient, on top of what it has from earlier steps of the update."""
        pieces = torch.split(made, [param.numel() for param in self.params])
        for param, piece, count, earlier in zip(self.params, pieces, counts, held, strict=True):
            grad = piece.view_as(param).to(param.dtype) if count else None
            if earlier is not None:
                grad = earlier if grad is None else earlier + grad
            param.grad = grad

    def _record(self, run: Run, losses: dict[str, Tensor], loss: Tensor) -> None:
        """Record the losses, which are those of all parts already."""
        run.loss = loss
        named = {self._label: loss}
        if len(losses) > 1:
            named |= {f"loss/{name}": value for name, value in losses.items()}
        for name, value in named.items():
            run.events.put(name, value)


class Buffers:
    """The buffers of a model (averages of batch norm): every part begins with those of before, and what the first
    virtual rank makes of them is kept on all processes."""

    def __init__(self, model: nn.Module) -> None:
        self._all = [buffer.detach() for buffer in model.buffers()]
        self._before = [buffer.clone() for buffer in self._all]
        self._first: list[Tensor] = []

    def put_back(self) -> list[bool]:
        """End a part; return which buffers it has changed."""
        # Not by their versions, which batch norm leaves as they are.
        moved = [not torch.equal(one, old) for one, old in zip(self._all, self._before, strict=True)]
        if not self._first:
            self._first = [one.clone() if own else one for one, own in zip(self._all, moved, strict=True)]
        for at, own in enumerate(moved):
            if own:
                self._all[at].copy_(self._before[at])
        return moved

    def use(self, moved: list[float]) -> None:
        """Keep what the first virtual rank has made of those that some part has changed."""
        for buffer, made, count in zip(self._all, self._first, moved, strict=True):
            if count:
                buffer.copy_(made)
                if group.is_joined():
                    torch.distributed.broadcast(buffer, src=0)


class VirtualEvaluation(Evaluation):
    """Evaluates each part where it belongs; all processes then see all outputs, in the order of virtual ranks."""

    def step(self, run: Run, batch: Parts) -> dict[str, Any]:
        own, seen = [], dict[str, Any]()
        for part, weight in zip(batch, batch.weights, strict=True):
            losses, output, target = self._passed(run, part)
            seen = {"losses": losses, "output": output, "target": target}
            if weight:
                own.append(
                    ({name: value.detach() for name, value in losses.items()}, output, target, count_of(target, part))
                )
        for losses, output, target, count in [one for rank in group.gather(own) for one in rank]:
            if run.world.is_main:
                self._keep(losses, count)
            for name, metric in self.metrics.items():
                self._measure(run, name, metric, output, target)
        return seen

    def _compute(self, metric: Any) -> Any:
        """Compute a metric that has seen all samples on every process."""
        if hasattr(metric, "sync_on_compute"):  # torchmetrics would count every sample once more for each process
            metric.sync_on_compute = False
        return metric.compute()
