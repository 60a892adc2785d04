"""LiBai's batch samplers: ``CyclicSampler`` for training, ``SingleRoundSampler`` for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler


class TooFewSamples(ValueError, ZeroDivisionError):
    """A dataset cannot fill one batch. It is a ``ZeroDivisionError``, too, because LiBai raises one then."""


class CyclicSampler(Sampler[list[int]]):
    """Samples endless batches. Every process has its own share of the data, shuffled anew each epoch.

    ``consumed_samples`` counts the samples of all processes; a sampler that starts with it continues where that many
    samples were drawn. A count that is no whole number of batches of all processes is interpreted as in LiBai:
    whole epochs by the share of one process, the rest by all.
    """

    def __init__(
        self,
        dataset: Any,
        micro_batch_size: int,
        shuffle: bool = False,
        consumed_samples: int = 0,
        data_parallel_rank: int = 0,
        data_parallel_size: int = 1,
        seed: int = 0,
    ) -> None:
        self.dataset, self.data_size = dataset, len(dataset)
        self.shuffle, self.seed = shuffle, seed
        self.data_parallel_rank, self.data_parallel_size = data_parallel_rank, data_parallel_size
        self.micro_batch_size = micro_batch_size
        self.actual_batch_size = micro_batch_size * data_parallel_size
        # As in LiBai, samples behind the last whole batch of all processes are never drawn.
        self.data_size_per_epoch = self.data_size // self.actual_batch_size * micro_batch_size
        self.consumed_samples = consumed_samples
        if self.data_size_per_epoch == 0:
            raise TooFewSamples(
                f"a batch of {self.actual_batch_size} samples cannot be drawn from {self.data_size}: "
                "make the batch smaller"
            )

    @property
    def epoch(self) -> int:
        return self._position()[0]

    def _position(self) -> tuple[int, int]:
        """Return the epoch, and the number of its samples that this process has drawn."""
        if self.consumed_samples % self.actual_batch_size == 0:
            return divmod(self.consumed_samples // self.data_parallel_size, self.data_size_per_epoch)
        epoch, rest = divmod(self.consumed_samples, self.data_size_per_epoch)
        return epoch, rest // self.data_parallel_size

    def __iter__(self) -> Iterator[list[int]]:
        epoch, begin = self._position()
        batch: list[int] = []
        while True:
            for index in self._order(epoch)[begin:]:
                batch.append(index)
                if len(batch) == self.micro_batch_size:
                    self.consumed_samples += self.actual_batch_size
                    yield batch
                    batch = []
            epoch, begin = epoch + 1, 0

    def _order(self, epoch: int) -> list[int]:
        first = self.data_parallel_rank * self.data_size_per_epoch
        if not self.shuffle:
            return list(range(first, first + self.data_size_per_epoch))
        # As in LiBai, shuffled inside the share: a process never sees the samples of another one.
        generator = torch.Generator().manual_seed(self.seed + epoch)
        order: list[int] = torch.randperm(self.data_size_per_epoch, generator=generator).tolist()
        return [first + index for index in order]

    def __len__(self) -> int:
        # As in LiBai, the number of samples and not of batches.
        return self.data_size

    def set_consumed_samples(self, consumed_samples: int) -> None:
        """Continue after ``consumed_samples`` samples of all processes together."""
        self.consumed_samples = consumed_samples

    def set_epoch(self, epoch: int) -> None:
        """Continue at the beginning of ``epoch``."""
        self.consumed_samples = epoch * self.data_size_per_epoch * self.data_parallel_size


class SingleRoundSampler(Sampler[list[int]]):
    """Samples every index once, a contiguous share per process. A process with one sample less repeats the first.

    With ``drop_last`` all processes yield the same number of batches, so that none waits for another in vain.
    """

    def __init__(
        self,
        dataset: Any,
        micro_batch_size: int,
        shuffle: bool = False,
        data_parallel_rank: int = 0,
        data_parallel_size: int = 1,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset, self.data_size = dataset, len(dataset)
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.data_parallel_rank, self.data_parallel_size = data_parallel_rank, data_parallel_size
        self.micro_batch_size = micro_batch_size

    def _share(self) -> tuple[int, int, bool]:
        """Return the first position, the number of samples, and whether a padding sample is needed."""
        base, extra = divmod(self.data_size, self.data_parallel_size)
        rank = self.data_parallel_rank
        own = base + (1 if rank < extra else 0)
        return rank * base + min(rank, extra), own, extra > 0 and rank >= extra

    def __iter__(self) -> Iterator[list[int]]:
        first, own, padded = self._share()
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed)
            order = torch.randperm(self.data_size, generator=generator).tolist()
        else:
            order = list(range(self.data_size))
        indices = order[first : first + own] + ([0] if padded and not self.drop_last else [])
        size = self.micro_batch_size
        batches = [indices[begin : begin + size] for begin in range(0, len(indices), size)]
        return iter(batches[: len(self)])

    def __len__(self) -> int:
        if self.drop_last:
            return self.data_size // self.data_parallel_size // self.micro_batch_size
        share = -(-self.data_size // self.data_parallel_size)
        return -(-share // self.micro_batch_size)
