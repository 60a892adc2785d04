"""Predicts the memory of a run without running a step: the real update trains on tensors that have no data.

torch's fake tensors have shapes and types only. A copy of the model is made of them, with the optimizers and the update
that a run would have, and does two updates, while every storage that is made and dropped is counted.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from etude import dialects, torch_private
from etude.build import build
from etude.building.ranks import for_world
from etude.building.update import build_update, forward_of
from etude.core.hook import HookTable
from etude.core.run import Run
from etude.core.update import Step
from etude.dist.layout.mesh import Mesh
from etude.dist.layout.wrap import Wrapped, mesh_of, strategy_of, wrap
from etude.dist.world import World
from etude.errors import ConfigError, EtudeError
from etude.events.record import Events
from etude.fast_dataclass import record, replace
from etude.optim.factory import build_optimizer
from etude.plan import Parallel, Plan

#: Updates that are done: the second one has the states that the first has made.
_UPDATES = 2
#: Batches that a worker has under way: given ahead, and the one in use.
_UNDER_WAY = 3
_READS = "aten._local_scalar_dense.default"
_HINT = "`etude fit-batch` finds it out by training two steps of each size"


@record
class Estimate:
    """Bytes of one rank at its peak, by what they are for."""

    batch_size: int
    model: int
    gradients: int
    optimizer: int
    #: What the backward pass needs, inputs, and temporary values.
    activations: int
    #: Buckets of DDP that are not gradients themselves.
    exchange: int
    #: The copy that a save makes in host memory, and the batches of data workers there.
    save: int
    workers: int
    #: What the process has without the run's tensors: the interpreter, libraries, the data.
    process: int

    @property
    def tensors(self) -> int:
        return self.model + self.gradients + self.optimizer + self.activations + self.exchange

    @property
    def whole(self) -> int:
        """The process on a CPU, where tensors are in its memory, too; its workers are processes of their own."""
        return self.tensors + self.save + self.process


class Planner:
    """Builds a run once, and estimates its memory for batches of any size."""

    def __init__(self, plan: Plan, ranks: int = 1) -> None:
        if dialects.of(plan).drives_itself:
            raise ConfigError(f"the memory of a run of {plan.dialect} cannot be told before it runs", hint=_HINT)
        if plan.parallel.is_split:
            raise ConfigError(
                "the memory of a model that is split cannot be told", at=str(plan.parallel.at), hint=_HINT
            )
        self.plan = plan = for_world(plan, World(size=ranks))
        self.ranks = ranks
        self.mesh = self._mesh()
        self.strategy = strategy_of(plan.parallel, self.mesh)
        # Built whole, in this process, which makes the first batch itself.
        train = replace(plan.data["train"], workers=0)
        alone = Parallel(strategy="none", at=plan.parallel.at)
        self.run: Run = build(replace(plan, parallel=alone, data={**plan.data, "train": train}))
        self.batch = next(iter(self.run.data["train"]))
        self.built_with = plan.data["train"].batch_size
        self._process = max(0, _resident() - _bytes_of(_tensors(self.run.model)))

    @property
    def on_cpu(self) -> bool:
        """Whether tensors are in the memory of the process."""
        return all(tensor.device.type == "cpu" for tensor in _tensors(self.run.model))

    def _mesh(self) -> Mesh:
        return mesh_of(self.plan.parallel, World(size=self.ranks, local_size=self.ranks))

    def estimate(self, batch_size: int | None = None) -> Estimate:
        """Return what one rank has at its peak, with batches of ``batch_size`` in all."""
        size = self.built_with if batch_size is None else batch_size
        each = -(-size // self.mesh.share[1])
        try:
            with torch_private.fake_ranks(self.ranks):
                mesh = self._mesh()  # which remembers the groups that it makes; they need numbers
                if self.strategy in ("fsdp", "hsdp"):
                    mesh.connect("cpu" if self.on_cpu else "cuda")
                with torch_private.fake_tensors() as faked, Live() as live:
                    return self._estimated(size, each, mesh, faked, live)
        except EtudeError:
            raise
        except Exception as error:
            said = (str(error).splitlines() or [""])[0][:200]
            text = f"the memory cannot be told without running a step ({type(error).__name__}: {said})"
            raise ConfigError(text, hint=_HINT) from error

    def _estimated(self, size: int, each: int, mesh: Mesh, faked: Callable[[Any], Any], live: Live) -> Estimate:
        plan = self.plan
        device = next(iter(_tensors(self.run.model))).device
        model, losses = faked((self.run.model, self._losses()))
        wrapped = Wrapped(model, model, lambda last: None)
        if self.strategy in ("fsdp", "hsdp"):
            wrapped = wrap(model, plan.parallel, mesh, device)
        live.hold(_tensors(model))
        optimizers = {name: build_optimizer(one, model) for name, one in plan.optimizers.items()}
        step, update = build_update(plan, forward_of(wrapped, losses), optimizers, mesh, device)
        trusting: Any = _Trusting()
        step._guard, step._stepping = trusting, None  # what asks for values
        run = copy.copy(self.run)
        run.model, run.update, run.optimizers = model, update, optimizers
        run.hooks, run.events, run.peers, run.batch, run.outputs = HookTable(), Events(), None, None, None
        trained = [p for p in model.parameters() if p.requires_grad]
        # DDP keeps its buckets; where gradients are views of these, there are no others.
        views = self.strategy == "ddp" and plan.parallel.bucket_view and step.accumulate == 1
        buckets = [torch.empty_like(p) for p in trained] if self.strategy == "ddp" else []
        model.train()
        for number in range(_UPDATES * step.accumulate):
            if views:
                for param, bucket in zip(trained, buckets, strict=True):
                    param.grad = bucket
            run.step = number
            run.outputs = update(run, _resized(faked(self.batch), each, self._size_of_batch()))
        return self._summed(size, step, model, trained, live, _bytes_of(buckets) if not views else 0)

    def _summed(
        self, size: int, step: Step, model: torch.nn.Module, trained: Iterable[Any], live: Live, exchange: int
    ) -> Estimate:
        own, gradients = _bytes_of(_tensors(model)), _bytes_of(trained)
        states = [value for opt in step.optimizers for state in opt.state.values() for value in state.values()]
        optimizer = _bytes_of(value for value in states if isinstance(value, torch.Tensor))
        averages = sum("Ema" in hook.spec.name or "EMA" in hook.spec.name for hook in self.plan.hooks)
        saves = any(hook.spec.name == "Checkpoint" for hook in self.plan.hooks)
        train = self.plan.data["train"]
        each = -(-size // self.mesh.share[1])
        batch = _bytes_of(_leaves(self.batch)) * each // max(1, self._size_of_batch())
        kept = own * (1 + averages)
        return Estimate(
            batch_size=size, model=kept, gradients=gradients, optimizer=optimizer,
            activations=max(0, live.peak - own - gradients - optimizer - exchange), exchange=exchange,
            save=kept + optimizer if saves else 0, workers=train.workers * _UNDER_WAY * batch, process=self._process,
        )  # fmt: skip

    def _losses(self) -> Mapping[str, Any]:
        forward = getattr(self.run.update, "forward", None)
        found = forward.losses if forward is not None else self.run.evaluation.forward.losses
        return dict(found)

    def _size_of_batch(self) -> int:
        """Return the first dimension of the tensors of the first batch."""
        sizes = [len(one) for one in _leaves(self.batch) if one.ndim]
        return max(set(sizes), key=sizes.count, default=self.built_with)

    def largest(self, limit: int, *, of_process: bool, most: int = 1 << 20) -> Estimate | None:
        """Return the estimate of the largest batch that fits into ``limit`` bytes; None if not even one sample does."""

        def fits(estimate: Estimate) -> bool:
            return (estimate.whole if of_process else estimate.tensors) <= limit

        shares = self.mesh.share[1]
        best, bad = self.estimate(shares), most + 1
        if not fits(best):
            return None
        size = max(2 * shares, self.built_with)
        while bad - best.batch_size > max(1, best.batch_size // 64):
            found = self.estimate(size)
            if fits(found):
                best = found
            else:
                bad = size
            if bad > most and best.batch_size >= most:
                break
            size = min(most, 2 * best.batch_size) if bad > most else (best.batch_size + bad) // 2
        return best


class _Trusting:
    """Takes every loss for finite: those of fake tensors have no value."""

    peeks = False
    bad = 0

    def passes(self, loss: Any) -> bool:
        return True

    is_finite = passes

    def learnt(self, run: Run) -> None: ...


class Live(torch_private.operator_mode()):  # type: ignore[misc]
    """Counts the bytes of storages that are alive, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func) == _READS:
            # A loss that is finite, a norm, a number of steps: a value that leads on.
            return True if args[0].dtype == torch.bool else 1.0 if args[0].is_floating_point() else 1
        made = func(*args, **(kwargs or {}))
        torch_private.mapped(self._note, made)
        if "reduce_scatter" in str(func):  # gloo works on a copy
            self.peak = max(self.peak, self.now + max(map(_bytes_of, ([one] for one in _leaves(args))), default=0))
        return made

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count tensors that were there before."""
        for tensor in tensors:
            self._note(tensor)

    def _note(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            for part in torch_private.parts_of(value):
                storage = part.untyped_storage()
                if id(storage) not in self._known:
                    self._known[id(storage)] = storage.nbytes()
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._drop, id(storage))
        return value

    def _drop(self, key: int) -> None:
        self.now -= self._known.pop(key)


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _leaves(batch: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    torch_private.mapped(lambda one: found.append(one) if isinstance(one, torch.Tensor) else None, batch)
    return found


def _bytes_of(tensors: Iterable[Any]) -> int:
    """Return the bytes of tensors on this rank; those of one storage count once."""
    parts = (part for tensor in tensors for part in torch_private.parts_of(tensor))
    return sum({id(s := part.untyped_storage()): s.nbytes() for part in parts}.values())


def _resized(batch: Any, size: int, before: int) -> Any:
    """Return a batch like this one with ``size`` samples."""

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.ndim and len(value) == before and size != before:
            return value.new_empty((size, *value.shape[1:]))
        return value

    return torch_private.mapped(one, batch)


def _resident() -> int:
    """Return the bytes of memory that this process has."""
    for line in Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else ():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
