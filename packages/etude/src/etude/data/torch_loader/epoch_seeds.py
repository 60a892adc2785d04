"""Workers that outlive an epoch and can be resumed all the same.

A worker's generators resume from epoch to epoch, in states that nobody outside can save. Here they are seeded at every
epoch with a number that the main process draws when torch would draw it for new workers: so workers that stay give
the same samples as workers that are started anew, and a resumed run repeats them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from etude import torch_private


def follow_torch(worker_id: int) -> None:
    """Seed Python's and numpy's generators as torch has seeded its own for this worker and epoch."""
    number = torch.initial_seed() % 2**32
    np.random.seed(number)
    random.seed(number)


def keep_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Let the lasting workers of ``loader`` draw as new ones would. It must have been made with :func:`stay_seeded`."""
    # torch refuses another sampler for a loader that was made; this one has not been iterated yet.
    loader.__dict__["batch_sampler"] = EpochSeeds(loader.batch_sampler)
    return loader


class Batch(list[int]):
    """The indices of a batch, and what the worker that makes it is to be seeded with; None: as it is."""

    seed: int | None = None


class EpochSeeds:
    """A batch sampler whose batches say, from the second pass on, what this pass is seeded with."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self._passes = 0

    def __iter__(self) -> Iterator[Batch]:
        seed = int(torch.empty((), dtype=torch.int64).random_().item()) if self._passes else None
        self._passes += 1
        for indices in self.batches:
            batch = Batch(indices)
            batch.seed = seed
            yield batch

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        if name == "batches":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.batches, name)


def stay_seeded(worker_id: int) -> None:
    """Seed all generators of a worker, now and whenever batches come that say so."""
    follow_torch(worker_id)
    # A worker gets nothing but indices, so the seed travels with them; this is the only place that sees both. The
    # change stays in the worker's own process.
    make = torch_private.fetch_of_workers()
    current = None

    def seeded(self: Any, indices: Any) -> Any:
        nonlocal current
        seed = getattr(indices, "seed", None)
        if seed is not None and seed != current:
            current = seed
            torch.manual_seed(seed + worker_id)
            follow_torch(worker_id)
        return make(self, indices)

    torch_private.set_fetch_of_workers(seeded)


def end_workers(loaders: Iterable[Any], batches: Iterable[Any]) -> None:
    """End the workers of lasting ``loaders`` and of passes that were not finished, in good order. Left to the garbage
    collector, torch waits seconds for each."""
    for loader in loaders:
        lasting = getattr(loader, "_iterator", None)
        if lasting is not None:
            _end(lasting)
            loader._iterator = None
    for one in batches:
        _end(one)


def _end(batches: Any) -> None:
    end = getattr(batches, "_shutdown_workers", None)
    if end is not None:
        end()
