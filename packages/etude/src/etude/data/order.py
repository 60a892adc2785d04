"""Decides which samples make up which batch, as a function of (seed, epoch), so that an epoch can start in its
middle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from etude.data.seeds import ORDER, SAMPLER, kept_generators, mix, seed_process
from etude.errors import DataError
from etude.fast_dataclass import record


class Task(NamedTuple):  # one is made for every batch: a frozen dataclass takes four times as long to make
    """One batch to make. ``indices`` is a tensor, or a list if a user-defined sampler yields other things."""

    epoch: int
    batch: int
    indices: Any = None
    #: Where a stream begins: the state it said it was in, if it can say so.
    state: Any = None
    #: What this rank's samples count against those of the other ranks, in a mean over all.
    weight: float = 1.0

    @property
    def place(self) -> str:
        """Describe the batch for people: counted from one, as in log lines and ``--chaos``."""
        return f"epoch {self.epoch + 1}, batch {self.batch + 1}"


class Source(Protocol):
    """Yields the tasks of an epoch, from batch ``start`` on."""

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]: ...

    def __len__(self) -> int: ...


@record
class Indexed:
    """Batches of a dataset that knows its length, in its own order or in one drawn from (seed, epoch)."""

    size: int
    batch_size: int
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0

    def __len__(self) -> int:
        return self.size // self.batch_size if self.drop_last else -(-self.size // self.batch_size)

    def order(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(self.size)
        generator = torch.Generator().manual_seed(mix(self.seed, epoch, ORDER) >> 1)
        return torch.randperm(self.size, generator=generator)

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        rest = self.order(epoch)[start * self.batch_size :]
        for number, indices in zip(range(start, len(self)), torch.split(rest, self.batch_size), strict=False):
            yield Task(epoch, number, indices)


@record
class Shared:
    """One rank's share of every batch of ``whole``: batches and their order do not depend on the number of ranks.

    Shares of a batch differ by one sample at most. A rank without a sample (a last batch may have fewer
    than there are ranks) is lent the first one, with the weight 0.
    """

    whole: Source
    shard: tuple[int, int]
    #: In how many tasks the share is dealt out: one for each virtual rank of this one.
    parts: int = 1

    def __len__(self) -> int:
        return len(self.whole)

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        for task in self.whole.tasks(epoch, start, state):
            for shard in parts_of(self.shard, self.parts):
                mine, weight = share_of(task.indices, shard)
                yield task._replace(indices=mine, weight=weight)


class Parts(list[Any]):
    """The parts of a batch that belong to the virtual ranks of a process; ``weights`` are those of their samples."""

    def __init__(self, parts: Iterable[Any], weights: Iterable[float]) -> None:
        super().__init__(parts)
        self.weights = list(weights)


def parts_of(shard: tuple[int, int], parts: int) -> list[tuple[int, int]]:
    """Return the shares of the virtual ranks that a process has.

    >>> parts_of((1, 2), 2)
    [(2, 4), (3, 4)]
    """
    rank, world = shard
    return [(rank * parts + number, world * parts) for number in range(parts)]


def share_of(batch: Any, shard: tuple[int, int]) -> tuple[Any, float]:
    """Return this rank's part of a batch, and its weight relative to the mean share.

    >>> [share_of([7, 8, 9], (rank, 2)) for rank in range(2)]
    [([7], 0.6666666666666666), ([8, 9], 1.3333333333333333)]
    """
    (rank, world), size = shard, len(batch)
    mine = batch[rank * size // world : (rank + 1) * size // world]
    return (mine, len(mine) * world / size) if len(mine) else (batch[:1], 0.0)


@record
class Sampled:
    """Batches in the order of a user-defined sampler; what it draws depends on (seed, epoch), too."""

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


@record
class SampledBatches:
    """Whole batches of indices, as a user-defined batch sampler yields them."""

    sampler: Any
    seed: int = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        for number, batch in enumerate(drawn(self.sampler, self.seed, epoch)):
            if number >= start:
                yield Task(epoch, number, list(batch))


@record
class Streamed:
    """Tasks for a stream, which ends by itself."""

    def __len__(self) -> int:
        raise TypeError("a stream of data has no length")

    def tasks(self, epoch: int, start: int, state: Any = None) -> Iterator[Task]:
        """Yield tasks. The first one says where to begin: at ``state``, or after ``start`` batches without a state."""
        yield Task(epoch, start, state=("begin", start, state))
        for number in count(start + 1):
            yield Task(epoch, number)


def drawn(sampler: Any, seed: int, epoch: int) -> Iterable[Any]:
    """Yield the indices of ``sampler`` in ``epoch``. One without a length may be endless and is asked as batches are
    made.

    One with a length may be endless all the same (MMEngine's is): an epoch is as many indices as it says.
    """
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError, AttributeError):
        return sampler  # type: ignore[no-any-return]
    with kept_generators():
        seed_process(mix(seed, epoch, SAMPLER))
        return list(islice(sampler, length))


class Sliced:
    """Iterates ``loader`` and slices each batch along its first dimension. ``weight`` is that of the last slice.

    >>> [part.tolist() for part in Sliced([torch.arange(4), torch.arange(3)], (1, 2))]
    [[2, 3], [1, 2]]
    """

    def __init__(self, loader: Any, shard: tuple[int, int], parts: int = 0) -> None:
        self.loader, self.shard, self.parts, self.weight = loader, shard, parts, 1.0

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            size = range(_size(batch))
            shares = [share_of(size, shard) for shard in parts_of(self.shard, self.parts or 1)]
            made = [_cut(batch, chosen.start, chosen.stop) for chosen, _ in shares]
            if self.parts:
                yield Parts(made, [weight for _, weight in shares])
            else:
                self.weight = shares[0][1]
                yield made[0]


class Limited:
    """Iterates the first ``limit`` batches of ``loader``.

    >>> [batch for batch in Limited(["a", "b", "c"], 2)], len(Limited(["a"], 2))
    (['a', 'b'], 1)
    """

    def __init__(self, loader: Any, limit: int) -> None:
        self.loader, self.limit = loader, limit

    def __len__(self) -> int:
        return min(self.limit, len(self.loader))

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        return islice(self.loader, self.limit)


def _size(batch: Any) -> int:
    """Return the number of samples in a batch: the length of its first tensor."""
    for tensor in _tensors(batch):
        if tensor.ndim:
            return len(tensor)
    raise DataError(f"a batch of {type(batch).__name__} cannot be shared among processes; give a dataset instead")


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    for part in batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ():
        yield from _tensors(part)


def _cut(batch: Any, start: int, stop: int) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[start:stop] if batch.ndim else batch
    if isinstance(batch, Mapping):
        return {key: _cut(item, start, stop) for key, item in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*(_cut(item, start, stop) for item in batch))
    return type(batch)(_cut(item, start, stop) for item in batch) if isinstance(batch, list | tuple) else batch
