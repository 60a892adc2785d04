"""The rest of an epoch that another number of processes has begun: the samples that none of them has taken yet.

torch's ``DistributedSampler`` cuts one order into shares, and a process alone draws an order from its generators. Both
can be drawn again from what a checkpoint says, so that other processes share out what is left. Samplers of another kind
are not known: their epoch begins again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from etude.data.seeds import kept_generators
from etude.data.torch_loader import passes, position
from etude.data.torch_loader.epoch_seeds import EpochSeeds


class Rest:
    """A batch sampler that gives ``batches`` in its first pass, and those of ``inner`` in all others."""

    def __init__(self, inner: Any, order: Sequence[int], rank: int, world: int) -> None:
        # Repeats fill it up, as in DistributedSampler, so that all processes have as many batches.
        self.inner, self.order = inner, [*order, *order[: -len(order) % world]]
        own, size = self.order[rank::world], inner.batch_size
        self.batches = [own[at : at + size] for at in range(0, len(own), size)]
        self._waiting = True

    @property
    def is_current(self) -> bool:
        """Return whether no later pass has begun."""
        return bool(self.order)

    def __iter__(self) -> Iterator[list[int]]:
        """Draw nothing before the first batch is requested: torch's loader begins a pass twice and uses one."""
        if self._waiting:
            self._waiting = False
            yield from self.batches
            return
        self.order = []
        yield from self.inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.inner, name)


def facts(loader: Any, world: int) -> dict[str, Any] | None:
    """Return how the order of the pass that ``loader`` is in can be drawn again; None where nobody knows."""
    holder, name = _place(loader)
    batches = None if holder is None else vars(holder)[name]
    if isinstance(batches, Rest) and batches.is_current:
        known = {"order": torch.tensor(batches.order), "first": len(loader) - len(batches.batches)}
        return {"kind": "rest", "world": world, "batch": batches.inner.batch_size, "batches": len(loader), **known}
    batches = batches.inner if isinstance(batches, Rest) else batches
    if type(batches) is not BatchSampler:
        return None
    usual = {"world": world, "length": len(loader.dataset), "batch": batches.batch_size, "batches": len(loader)}
    sampler: Any = batches.sampler
    if isinstance(sampler, DistributedSampler) and type(sampler).__iter__ is DistributedSampler.__iter__:
        own = {"seed": sampler.seed, "epoch": sampler.epoch, "shuffle": sampler.shuffle}
        return {"kind": "shared", **usual, **own} if sampler.num_replicas == world else None
    if world == 1 and type(sampler) is SequentialSampler:
        return {"kind": "in order", **usual}
    whole = type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == usual["length"]
    if world == 1 and whole and passes.workers_of(loader) is None:
        return {"kind": "drawn", **usual}
    return None


def to_share(saved: Mapping[str, Any]) -> list[int] | None:
    """Return the samples that a resumed pass shares out; None for one that goes on with its own sampler."""
    if "left" in saved:
        return list(saved["left"])
    return left(saved) if (saved.get("order") or {}).get("kind") == "rest" else None


def left(saved: Mapping[str, Any]) -> list[int] | None:
    """Return the samples of a saved pass that were not taken, in order; None where nobody knows."""
    known = saved.get("order")
    order = None if not known else _order(known, saved)
    if not known or order is None:
        return None
    done = int(saved["taken"]) - int(known.get("first", 0))
    return order[done * int(known["batch"]) * int(known["world"]) :]


def _order(known: Mapping[str, Any], saved: Mapping[str, Any]) -> list[int] | None:
    """Return the whole order; with several processes, that of all of them."""
    if known["kind"] == "rest":
        return list(torch.as_tensor(known["order"]).tolist())
    samples: Any = range(int(known["length"]))
    if known["kind"] == "in order":
        return list(samples)
    if known["kind"] == "shared":
        # One replica gets the whole order, which does not depend on their number.
        whole: Any = DistributedSampler(
            samples, num_replicas=1, rank=0, shuffle=bool(known["shuffle"]), seed=int(known["seed"])
        )
        whole.set_epoch(int(known["epoch"]))
        return list(whole)
    if len(saved["own"]) > 1:
        return None
    with kept_generators():
        own = torch.Generator().set_state(saved["own"][0]) if saved["own"] else None
        # Through a loader, which draws a number for its workers before the sampler draws the order.
        loader: Any = DataLoader(samples, batch_size=None, sampler=RandomSampler(samples, generator=own), generator=own)
        passes.set_rng_state(saved["rng"])
        drawn = iter(loader)
        passes.set_rng_state(saved["first_rng"])
        return [int(one) for one in drawn]


def begin(loader: Any, order: Sequence[int], rank: int, world: int) -> tuple[Any, passes.LoaderPass]:
    """Begin a pass over this process's share of ``order``; it ends where a whole epoch would."""
    holder, name = _place(loader)
    if holder is None:
        raise TypeError(f"{type(loader).__name__} has no batch sampler")
    inner = vars(holder)[name]
    made = Rest(inner.inner if isinstance(inner, Rest) else inner, order, rank, world)
    vars(holder)[name] = made  # past torch's loader, which refuses another sampler
    current = passes.LoaderPass(loader, at_once=True)
    current.taken = max(0, len(loader) - len(made.batches))
    return passes.begin(loader), current


def can_begin(loader: Any) -> bool:
    """Return whether the batches of ``loader`` are lists of indices of a known number."""
    holder, name = _place(loader)
    return holder is not None and isinstance(getattr(vars(holder)[name], "batch_size", None), int)


def _place(loader: Any) -> tuple[Any, str]:
    """Return who holds the batch sampler of ``loader`` that draws, below those that only mark its batches, and as
    what.
    """
    if not position.has_indices(loader):
        return None, ""
    holder, name = loader, "batch_sampler"
    while True:
        found = vars(holder)[name]
        if isinstance(found, EpochSeeds):
            holder, name = found, "batches"
        elif isinstance(found, position.Numbered):
            holder, name = found, "_inner"
        else:
            return holder, name
