"""Which samples make up which batch: a function of (seed, epoch), so that an epoch can start in its middle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol

import torch
from torch import Tensor

from etude.data.seeds import kept_generators, mix, seed_process

#: Keeps the draws of an order apart from those of samples and of collating.
_ORDER, _SAMPLER = -1, -2


@dataclass(frozen=True)
class Task:
    """One batch to make. ``indices`` is a tensor, or a list where a sampler of the user yields other things."""

    epoch: int
    batch: int
    indices: Any = None
    #: Where a stream begins: the state it said it was in, if it can say so.
    state: Any = None

    @property
    def place(self) -> str:
        """Which batch it is, for people: counted as log lines and ``--chaos`` do, from one."""
        return f"epoch {self.epoch + 1}, batch {self.batch + 1}"


class Source(Protocol):
    """Gives the tasks of an epoch, from batch ``start`` on."""

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Shuffled:
    """Batches of a dataset that knows its length, in its own order or in one drawn from (seed, epoch).

    ``shard`` is (rank, world): every rank takes its slice of each global batch. The last one is filled up from the
    beginning of the order, so that no rank runs out of batches before the others.
    """

    size: int
    batch_size: int
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
    shard: tuple[int, int] = (0, 1)

    def __len__(self) -> int:
        whole = self.batch_size * self.shard[1]
        return self.size // whole if self.drop_last else -(-self.size // whole)

    def order(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(self.size)
        generator = torch.Generator().manual_seed(mix(self.seed, epoch, _ORDER) >> 1)
        return torch.randperm(self.size, generator=generator)

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        mine, size = self._mine(self.order(epoch)), self.batch_size
        for number in range(start, len(self)):
            yield Task(epoch, number, mine[number * size : (number + 1) * size])

    def _mine(self, order: Tensor) -> Tensor:
        rank, world = self.shard
        if world == 1:
            return order
        missing = -len(order) % world
        order = torch.cat([order, order.repeat(-(-missing // len(order)))[:missing]]) if missing else order
        whole = self.batch_size * world
        full = len(order) // whole * whole
        rest = order[full:].view(world, -1)[rank] if full < len(order) else order[:0]
        return torch.cat([order[:full].view(-1, world, self.batch_size)[:, rank].reshape(-1), rest])


@dataclass(frozen=True)
class Sampled:
    """Batches in the order of a sampler of the user; what it draws depends on (seed, epoch) too."""

    sampler: Any
    batch_size: int
    drop_last: bool = False
    seed: int = 0

    def __len__(self) -> int:
        size = len(self.sampler)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        indices = iter(drawn(self.sampler, self.seed, epoch))
        for number in count():
            batch = list(islice(indices, self.batch_size))
            if not batch or (self.drop_last and len(batch) < self.batch_size):
                return
            if number >= start:
                yield Task(epoch, number, batch)


@dataclass(frozen=True)
class SampledBatches:
    """Whole batches of indices, as a batch sampler of the user gives them."""

    sampler: Any
    seed: int = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        for number, batch in enumerate(drawn(self.sampler, self.seed, epoch)):
            if number >= start:
                yield Task(epoch, number, list(batch))


@dataclass(frozen=True)
class Endless:
    """Tasks for a stream, which says itself when it is at its end."""

    def __len__(self) -> int:
        raise TypeError("a stream of data has no length")

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        """The first task says where to begin: at ``state``, or after ``start`` batches where there is none."""
        yield Task(epoch, start, state=("begin", start, state))
        for number in count(start + 1):
            yield Task(epoch, number)


def drawn(sampler: Any, seed: int, epoch: int) -> Iterable[Any]:
    """What ``sampler`` yields in ``epoch``. One without a length may be endless and is asked as batches are made.

    One with a length may be endless all the same (MMEngine's is): an epoch is as many indices as it says.
    """
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError, AttributeError):
        return sampler  # type: ignore[no-any-return]
    with kept_generators():
        seed_process(mix(seed, epoch, _SAMPLER))
        return list(islice(sampler, length))
