"""detectron2's loaders for user-defined lists of dicts, for use without detectron2. A batch is a list of samples.

Datasets, other samplers and batches of one aspect ratio exist only in detectron2, which is used if it is installed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler

from etude.errors import UserError
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.detectron.default import seed_all_rng

Collate = Callable[[list[Any]], Any]
_GIVE_UP_AFTER = 3


class MapDataset(Dataset[Any]):
    """Applies a function to the samples of a dataset. If it returns None, another sample is taken."""

    def __init__(self, dataset: Any, map_func: Callable[[Any], Any]) -> None:
        self._dataset, self._map_func = dataset, map_func
        # detectron2's seed; a generator of its own leaves those of the training alone.
        self._rng = random.Random(42)
        self._fallback_candidates = set(range(len(dataset)))

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        current = int(index)
        for _ in range(_GIVE_UP_AFTER):
            made = self._map_func(self._dataset[current])
            if made is not None:
                self._fallback_candidates.add(current)
                return made
            self._fallback_candidates.discard(current)
            current = self._rng.choice(sorted(self._fallback_candidates) or [current])
        raise ValueError(f"the mapper returned None for sample {index} and for {_GIVE_UP_AFTER - 1} others")


class TrainingSampler(Sampler[int]):
    """Samples endless permutations of all samples. Each process takes every world-size-th."""

    def __init__(self, size: int, shuffle: bool = True, seed: int | None = None) -> None:
        if not isinstance(size, int) or size <= 0:
            raise ValueError(f"TrainingSampler needs a positive number of samples, not {size!r}")
        self._size, self._shuffle = size, shuffle
        self._seed = int(dist.shared_random_seed() if seed is None else seed)
        self._rank, self._world_size = topology.get_rank(), topology.get_world_size()

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(self._infinite_indices(), self._rank, None, self._world_size)

    def _infinite_indices(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(self._seed)
        while True:
            shuffled = torch.randperm(self._size, generator=generator) if self._shuffle else torch.arange(self._size)
            yield from shuffled.tolist()

    def state_dict(self) -> dict[str, int]:
        """Return the seed, which may be random."""
        return {"seed": self._seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._seed = int(state["seed"])


class InferenceSampler(Sampler[int]):
    """Samples a contiguous share per process, so that every sample is taken exactly once."""

    def __init__(self, size: int) -> None:
        assert size > 0, "there is no sample to evaluate on"
        base, extra = divmod(size, topology.get_world_size())
        rank = topology.get_rank()
        begin = base * rank + min(rank, extra)
        self._local_indices = range(begin, begin + base + int(rank < extra))

    def __iter__(self) -> Iterator[int]:
        yield from self._local_indices

    def __len__(self) -> int:
        return len(self._local_indices)


def trivial_batch_collator(batch: list[Any]) -> list[Any]:
    """Return the list of samples unchanged."""
    return batch


def worker_init_reset_seed(worker_id: int) -> None:
    """Seed all random generators of a worker."""
    seed_all_rng(torch.initial_seed() % 2**31 + worker_id)


def build_detection_train_loader(
    dataset: Any,
    *,
    mapper: Callable[[Any], Any] | None,
    sampler: Any = None,
    total_batch_size: int,
    aspect_ratio_grouping: bool = True,
    num_workers: int = 0,
    collate_fn: Collate | None = None,
    **kwargs: Any,
) -> DataLoader[Any]:
    """Return a loader of endless batches from a list of dicts or a dataset, with ``mapper`` applied to each sample."""
    if aspect_ratio_grouping:
        raise UserError("aspect_ratio_grouping needs detectron2, which is not installed; set it to False")
    dataset, world = _mapped(dataset, mapper), topology.get_world_size()
    assert total_batch_size > 0 and total_batch_size % world == 0, (
        f"Total batch size ({total_batch_size}) must be divisible by the number of gpus ({world})."
    )
    size = total_batch_size // world
    if isinstance(dataset, IterableDataset):
        order: dict[str, Any] = {"batch_size": size, "drop_last": True}
    else:
        order = {"batch_sampler": BatchSampler(sampler or TrainingSampler(len(dataset)), size, drop_last=True)}
    collate = collate_fn or trivial_batch_collator
    options = {"num_workers": num_workers, "worker_init_fn": worker_init_reset_seed, **kwargs}
    return DataLoader(dataset, collate_fn=collate, **order, **options)


def build_detection_test_loader(
    dataset: Any,
    *,
    mapper: Callable[[Any], Any] | None,
    sampler: Any = None,
    batch_size: int = 1,
    num_workers: int = 0,
    collate_fn: Collate | None = None,
) -> DataLoader[Any]:
    """Return a loader that gives every sample once, in batches of ``batch_size``."""
    dataset = _mapped(dataset, mapper)
    if not isinstance(dataset, IterableDataset) and sampler is None:
        sampler = InferenceSampler(len(dataset))
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=num_workers,
        collate_fn=collate_fn or trivial_batch_collator,
    )


def _mapped(dataset: Any, mapper: Callable[[Any], Any] | None) -> Any:
    return dataset if mapper is None else MapDataset(dataset, mapper)
