"""MMEngine's samplers: the order of the samples, and the share of this rank."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler

from etude_openmm.mmengine.live.dist.collectives import sync_random_seed
from etude_openmm.mmengine.live.dist.utils import get_dist_info
from etude_openmm.shared.registries.root import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class DefaultSampler(Sampler[int]):
    """Samples one epoch: a permutation by ``seed + epoch`` (or the plain order), every world-size-th for this rank.

    ``round_up`` repeats the first samples until all ranks have equally many.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int | None = None, round_up: bool = True) -> None:
        self.rank, self.world_size = get_dist_info()
        self.dataset, self.shuffle = dataset, shuffle
        self.seed = sync_random_seed() if seed is None else seed
        self.epoch = 0
        self.round_up = round_up
        if round_up:
            self.num_samples = math.ceil(len(dataset) / self.world_size)
            self.total_size = self.num_samples * self.world_size
        else:
            self.num_samples = math.ceil((len(dataset) - self.rank) / self.world_size)
            self.total_size = len(dataset)

    def __iter__(self) -> Iterator[int]:
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = torch.randperm(len(self.dataset), generator=generator).tolist()
        if self.round_up and indices:
            # A dataset that is smaller than the number of ranks is repeated more than once.
            indices = (indices * math.ceil(self.total_size / len(indices)))[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.world_size])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which decides the permutation."""
        self.epoch = epoch


@DATA_SAMPLERS.register_module()
class InfiniteSampler(Sampler[int]):
    """Samples endless permutations from one generator, every world-size-th sample for this rank."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int | None = None) -> None:
        self.rank, self.world_size = get_dist_info()
        self.dataset, self.shuffle = dataset, shuffle
        self.size = len(dataset)
        self.seed = sync_random_seed() if seed is None else seed
        self.indices = self._indices_of_rank()

    def _infinite_indices(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(self.seed)
        while True:
            if self.shuffle:
                yield from torch.randperm(self.size, generator=generator).tolist()
            else:
                yield from range(self.size)

    def _indices_of_rank(self) -> Iterator[int]:
        yield from itertools.islice(self._infinite_indices(), self.rank, None, self.world_size)

    def __iter__(self) -> Iterator[int]:
        # One generator for all passes: as in MMEngine, a second pass continues where the first one stopped.
        yield from self.indices

    def __len__(self) -> int:
        # As in MMEngine, the size of the dataset, although the sequence is endless.
        return self.size

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: an endless sequence has no epochs."""
