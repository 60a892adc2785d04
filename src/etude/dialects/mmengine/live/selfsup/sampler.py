"""A sampler whose order may follow cluster labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import numpy as np

from etude.dialects.mmengine.live.data.sampler import DefaultSampler


class DeepClusterSampler(DefaultSampler):
    """As DefaultSampler until :meth:`set_uniform_indices` gave it samples that are balanced over clusters."""

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int | None = None,
        round_up: bool = True,
        replace: bool = False,
    ) -> None:
        super().__init__(dataset, shuffle=shuffle, seed=seed, round_up=round_up)
        self.replace = replace
        self.unif_sampling_flag = False
        self.indices: list[int] = []

    def set_uniform_indices(self, labels: list[int], num_classes: int) -> None:
        """Draw equally many samples of every cluster that has any."""
        self.unif_sampling_flag = True
        random = np.random.default_rng(self.seed + self.epoch)
        found = np.asarray(labels)
        members = [np.flatnonzero(found == label) for label in range(num_classes)]
        each = int(len(found) / num_classes) + 1
        drawn = [random.choice(m, each, replace=len(m) <= each) for m in members if len(m)]
        order = np.concatenate(drawn)
        random.shuffle(order)
        length = len(self.dataset)
        self.indices = np.resize(order, length).astype(int).tolist()

    def __iter__(self) -> Iterator[int]:
        if not self.unif_sampling_flag:
            if not self.replace:
                return super().__iter__()
            drawn = np.random.default_rng(self.seed + self.epoch).integers(0, len(self.dataset), len(self.dataset))
            self.indices = drawn.tolist()
        indices = self.indices
        if self.round_up and indices:
            indices = (indices * math.ceil(self.total_size / len(indices)))[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.world_size])
