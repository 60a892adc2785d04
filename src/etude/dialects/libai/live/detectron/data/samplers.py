"""detectron2's samplers: endless ones for training, a contiguous share per process for evaluation."""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, Sampler

from etude.dialects.libai.live.detectron.utils import comm

logger = logging.getLogger("detectron2.data.samplers.distributed_sampler")


class _Endless(Sampler[int]):
    """Every process takes its turn in one endless order, which all of them know by a common seed."""

    def __init__(self, seed: int | None) -> None:
        self._seed = int(comm.shared_random_seed() if seed is None else seed)
        self._rank, self._world_size = comm.get_rank(), comm.get_world_size()

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(self._infinite_indices(), self._rank, None, self._world_size)

    def state_dict(self) -> dict[str, int]:
        """The seed, which may have come about by chance."""
        return {"seed": self._seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._seed = int(state["seed"])

    def _infinite_indices(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(self._seed)
        while True:
            yield from self._pass(generator)

    def _pass(self, generator: torch.Generator) -> list[int]:
        raise NotImplementedError


def _order(size: int, shuffle: bool, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(size, generator=generator) if shuffle else torch.arange(size)


class TrainingSampler(_Endless):
    """One permutation of all samples after the other."""

    def __init__(self, size: int, shuffle: bool = True, seed: int | None = None) -> None:
        if not isinstance(size, int):
            raise TypeError(f"TrainingSampler(size=) expects an int. Got type {type(size)}.")
        if size <= 0:
            raise ValueError(f"TrainingSampler(size=) expects a positive int. Got {size}.")
        self._size, self._shuffle = size, shuffle
        super().__init__(seed)

    def _pass(self, generator: torch.Generator) -> list[int]:
        found: list[int] = _order(self._size, self._shuffle, generator).tolist()
        return found


class RandomSubsetTrainingSampler(TrainingSampler):
    """:class:`TrainingSampler` over a random share of the samples, chosen once."""

    def __init__(
        self,
        size: int,
        subset_ratio: float,
        shuffle: bool = True,
        seed_shuffle: int | None = None,
        seed_subset: int | None = None,
    ) -> None:
        super().__init__(size=size, shuffle=shuffle, seed=seed_shuffle)
        assert 0.0 < subset_ratio <= 1.0
        self._size_subset = int(size * subset_ratio)
        assert self._size_subset > 0
        chooser = torch.Generator()
        chooser.manual_seed(comm.shared_random_seed() if seed_subset is None else seed_subset)
        self._indexes_subset = torch.randperm(size, generator=chooser)[: self._size_subset]
        logger.info("Using RandomSubsetTrainingSampler......")
        logger.info(f"Randomly sample {self._size_subset} data from the original {size} data")

    def _pass(self, generator: torch.Generator) -> list[int]:
        found: list[int] = self._indexes_subset[_order(self._size_subset, self._shuffle, generator)].tolist()
        return found


class RepeatFactorTrainingSampler(_Endless):
    """Each sample as often as its factor says; the fraction of a factor is a chance, drawn anew in each pass."""

    def __init__(self, repeat_factors: torch.Tensor, *, shuffle: bool = True, seed: int | None = None) -> None:
        self._shuffle = shuffle
        self._int_part = torch.trunc(repeat_factors)
        self._frac_part = repeat_factors - self._int_part
        super().__init__(seed)

    @staticmethod
    def repeat_factors_from_category_frequency(
        dataset_dicts: Sequence[Mapping[str, Any]], repeat_thresh: float, sqrt: bool = True
    ) -> torch.Tensor:
        """A factor per image: that of its rarest category, ``repeat_thresh / frequency`` (its root), at least 1."""
        present = [{annotation["category_id"] for annotation in entry["annotations"]} for entry in dataset_dicts]
        images = Counter(category for categories in present for category in categories)
        factor: dict[Any, float] = {}
        for category, count in images.items():
            share = repeat_thresh / (count / len(dataset_dicts))
            factor[category] = max(1.0, math.sqrt(share) if sqrt else share)
        factors = [max((factor[category] for category in categories), default=1.0) for categories in present]
        return torch.tensor(factors, dtype=torch.float32)

    def _get_epoch_indices(self, generator: torch.Generator) -> torch.Tensor:
        chances = torch.rand(len(self._frac_part), generator=generator)
        counts = self._int_part + (chances < self._frac_part).float()
        return torch.repeat_interleave(torch.arange(len(counts)), counts.long())

    def _pass(self, generator: torch.Generator) -> list[int]:
        indices = self._get_epoch_indices(generator)
        if self._shuffle:
            indices = indices[torch.randperm(len(indices), generator=generator)]
        found: list[int] = indices.tolist()
        return found


class InferenceSampler(Sampler[int]):
    """A contiguous share per process; together every sample exactly once."""

    def __init__(self, size: int) -> None:
        self._size = size
        assert size > 0, "there is no sample to evaluate on"
        self._rank, self._world_size = comm.get_rank(), comm.get_world_size()
        self._local_indices = self._get_local_indices(size, self._world_size, self._rank)

    @staticmethod
    def _get_local_indices(total_size: int, world_size: int, rank: int) -> range:
        base, extra = divmod(total_size, world_size)
        sizes = [base + int(each < extra) for each in range(world_size)]
        begin = sum(sizes[:rank])
        return range(begin, min(sum(sizes[: rank + 1]), total_size))

    def __iter__(self) -> Iterator[int]:
        yield from self._local_indices

    def __len__(self) -> int:
        return len(self._local_indices)


class GroupedBatchSampler(BatchSampler):
    """Batches whose samples are all of one group, in the order of the sampler; what fills no batch is left out."""

    def __init__(self, sampler: Sampler[int], group_ids: Any, batch_size: int) -> None:
        if not isinstance(sampler, Sampler):
            raise ValueError(f"sampler should be an instance of torch.utils.data.Sampler, but got sampler={sampler}")
        super().__init__(sampler, batch_size, drop_last=False)
        self.group_ids = [int(group) for group in group_ids]

    def __iter__(self) -> Iterator[list[int]]:
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for index in self.sampler:
            group = waiting[self.group_ids[index]]
            group.append(index)
            if len(group) == self.batch_size:
                yield group[:]
                del group[:]

    def __len__(self) -> int:
        raise NotImplementedError("len() of GroupedBatchSampler is not well-defined.")


def own_batch_size(total: int, single: int | None = None) -> int:
    """Return what one process draws at once; ``total`` is shared by all."""
    if single:
        if total:
            raise ValueError(f"total_batch_size and single_gpu_batch_size are mutually exclusive. Got {total} {single}")
        return single
    world = comm.get_world_size()
    assert total > 0 and total % world == 0, (
        f"Total batch size ({total}) must be divisible by the number of gpus ({world})."
    )
    return total // world
