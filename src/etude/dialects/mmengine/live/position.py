"""Data from the middle: the batches that follow those a run has seen, without loading the seen ones again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset


class _From:
    """A batch sampler whose next pass goes on with an iterator that was moved forward; later passes are whole."""

    def __init__(self, batch_sampler: Any, started: Iterator[Any]) -> None:
        self._inner, self._started = batch_sampler, started

    def __iter__(self) -> Iterator[Any]:
        return self._started

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def after(loader: Iterable[Any], count: int) -> Iterator[Any]:
    """The batches of ``loader`` behind its first ``count``."""
    return moved(loader, count, restart=None)


def moved(loader: Any, count: int, *, restart: Callable[[], None] | None) -> Iterator[Any]:
    """As :func:`after`, where ``count`` may reach over several passes: ``restart`` is called before each new one.

    Where batches are lists of indices only those are drawn. A stream has to be read.
    """
    if count == 0:
        return iter(loader)
    if not _has_indices(loader):
        return _skipped(lambda: iter(loader), count, restart)
    started = _skipped(lambda: iter(loader.batch_sampler), count, restart)
    rest = copy.copy(loader)
    object.__setattr__(rest, "batch_sampler", _From(loader.batch_sampler, started))
    object.__setattr__(rest, "_iterator", None)
    return iter(rest)


def _skipped(begin: Callable[[], Iterator[Any]], count: int, restart: Callable[[], None] | None) -> Iterator[Any]:
    batches = begin()
    while count > 0:
        passed = sum(1 for _ in islice(batches, count))
        count -= passed
        if count > 0:
            if restart is None or passed == 0:
                break
            restart()
            batches = begin()
    return batches


def _has_indices(loader: Any) -> bool:
    return (
        isinstance(loader, DataLoader)
        and loader.batch_sampler is not None
        and not isinstance(loader.dataset, IterableDataset)
    )
