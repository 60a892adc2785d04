"""One rank's share of the batches of a loader of another make: every rank makes the batch and keeps its part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from etude.data.order import share_of
from etude.errors import DataError


class Sliced:
    """Iterates ``loader`` and cuts each batch along its first dimension. ``weight`` is what the last part counts.

    >>> [part.tolist() for part in Sliced([torch.arange(4), torch.arange(3)], (1, 2))]
    [[2, 3], [1, 2]]
    """

    def __init__(self, loader: Any, shard: tuple[int, int]) -> None:
        self.loader, self.shard, self.weight = loader, shard, 1.0

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            chosen, self.weight = share_of(range(_size(batch)), self.shard)
            yield _cut(batch, chosen.start, chosen.stop)


def _size(batch: Any) -> int:
    """Samples of a batch: the length of its first tensor."""
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
