"""Tracks the position of a trainer in its data, and resumes from there.

Random numbers in a worker depend on the number of the batch, so a resumed run draws the same ones. Those in the main
process come from its generators, which a checkpoint holds.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from etude.data.resume import Snapshot
from etude.data.seeds import mix, seed_process
from etude_libai.live import topology

#: Positions of loaders to resume, by ``id``. The loader is kept, too, so that no other object gets its id.
_BEGIN: dict[int, tuple[Any, Mapping[str, Any]]] = {}


def begin_at(loader: Any, state: Mapping[str, Any]) -> None:
    """Let the next pass over ``loader`` begin at ``state``. ``positioned`` means that its sampler does so itself."""
    _BEGIN[id(loader)] = (loader, state)


_put_off: list[bool] = []


@contextmanager
def put_off() -> Iterator[None]:
    """Let trainers made inside this context load no data before they train."""
    _put_off.append(True)
    try:
        yield
    finally:
        _put_off.pop()


class Batches:
    """Iterates over a loader and counts the batches from the beginning of the run.

    With ``at_once`` the iterator is made now, so that workers start; but not inside :func:`put_off`, and not if
    batches have to be skipped, which waits until training begins.
    """

    def __init__(self, loader: Any, *, at_once: bool = False) -> None:
        self._loader = loader
        _, state = _BEGIN.get(id(loader), (None, {}))
        self.batches = int(state.get("batches", 0))
        self._positioned = bool(state.get("positioned"))
        self._skip = 0 if self._positioned else self.batches
        self._seed = int(state.get("seed", torch.initial_seed() & 0x7FFFFFFFFFFFFFFF))
        self._began, self._first = state.get("began"), state.get("first")
        self._sampler = _stateful_sampler(loader)
        if self._sampler is not None and state.get("sampler"):
            self._sampler.load_state_dict(state["sampler"])
        self._iterator: Iterator[Any] | None = None
        self._order: _Order | None = None
        self._taken: list[Any] = []
        if at_once and not self._skip and not _put_off:
            self.start()

    def start(self) -> None:
        """Make the iterator, so that workers load the first batches."""
        if self._iterator is None and self._skip:
            self._iterator = self._skip_seen()
        elif self._iterator is None:
            self._began = Snapshot.take().state_dict()
            self._iterator = iter(self._numbered())

    def _numbered(self) -> Any:
        numbered = _seed_by_batch(self._loader, self._seed, self.batches, self._skip)
        self._order = getattr(numbered, "order", None) if numbered is not self._loader else None
        return numbered

    def _skip_seen(self) -> Iterator[Any]:
        """Return an iterator after the batches of the earlier run, without changing the process's generators."""
        now = Snapshot.take().state_dict()
        numbered = self._numbered()
        # The first run drew twice: when the iterator was made, and with the first batch.
        Snapshot.of(self._began or now).restore()
        iterator: Iterator[Any] = iter(numbered)
        Snapshot.of(self._first or now).restore()
        if numbered is self._loader:
            logging.getLogger("libai.engine.default").info(
                f"Reading {self._skip} batches that were seen before: this loader cannot start in the middle"
            )
            sum(1 for _ in islice(iterator, self._skip))
        elif numbered.num_workers == 0:
            numbered.order.begin()
        Snapshot.of(now).restore()
        return iterator

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self.start()
        if self._first is None:
            self._first = Snapshot.take().state_dict()
        _BEGIN.pop(id(self._loader), None)
        assert self._iterator is not None
        batch = next(self._iterator)
        self.batches += 1
        if self._order is not None and self._order.drawn:
            self._taken.append(self._order.drawn.popleft())
        return batch

    def samples(self) -> Any:
        """Return the indices of the samples that were taken since the last call; None if they are unknown."""
        taken, self._taken = self._taken, []
        return [one for batch in taken for one in batch] if len(taken) > 1 else taken[0] if taken else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_iterator" or self._iterator is None:
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def rest(self) -> None:
        """Stop the workers. If another batch is asked for, new workers start."""
        stop = getattr(self._iterator, "_shutdown_workers", None)
        if stop is not None:
            stop()
            self._iterator, self._skip = None, 0 if self._positioned else self.batches

    def state_dict(self) -> dict[str, Any]:
        """Return the number of batches so far, and the states of the generators from which the loader began."""
        return {
            "batches": self.batches,
            "seed": self._seed,
            "began": self._began,
            "first": self._first,
            "sampler": None if self._sampler is None else self._sampler.state_dict(),
        }


def _stateful_sampler(loader: Any, depth: int = 4) -> Any:
    """Return the sampler inside a loader that has a state, or None."""
    if isinstance(loader, Sampler) and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
        return loader
    for name in ("batch_sampler", "sampler", "dataset", "_dataset") if depth else ():
        found = _stateful_sampler(getattr(loader, name, None), depth - 1)
        if found is not None:
            return found
    return None


def batches_of(trainer: Any) -> Batches | None:
    """Return the batch iterator of a trainer or of its inner trainer; None if it iterates over its data differently."""
    for each in (getattr(trainer, "_trainer", None), trainer):
        held = getattr(each, "__dict__", {})
        found = held.get("_data_loader_iter", held.get("_data_loader_iter_obj"))
        if isinstance(found, Batches):
            return found
    return None


def _seed_by_batch(loader: Any, seed: int, number: int, skip: int) -> Any:
    """Return a copy of a ``DataLoader`` that seeds workers by the number of the batch.

    Other loaders, and those of iterable datasets, are returned as they are.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    of = "sampler" if loader.batch_sampler is None else "batch_sampler"
    made = copy.copy(loader)
    order = _Order(getattr(loader, of), seed, number, skip, workers=loader.num_workers > 0)
    # DataLoader forbids setting its sampler. It is safe here, because the copy has not been iterated yet.
    object.__setattr__(made, of, order)
    object.__setattr__(made, "_iterator", None)
    object.__setattr__(made, "order", order)
    return made


class _Order:
    """A sampler that skips what an earlier run has drawn, and seeds the worker that loads a batch."""

    def __init__(self, inner: Any, seed: int, number: int, skip: int, *, workers: bool) -> None:
        self.inner, self.seed, self.number, self.skip, self.workers = inner, seed, number, skip, workers
        self._begun: Iterator[Any] | None = None
        #: The batches that were drawn and not taken yet: workers are asked for some in advance.
        self.drawn: deque[Any] = deque()

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def begin(self) -> None:
        """Draw the indices to skip, without loading samples."""
        if self._begun is None:
            self._begun = iter(self.inner)
            sum(1 for _ in islice(self._begun, self.skip))

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        drawn, self._begun, self.skip = self._begun, None, 0
        assert drawn is not None
        for index in drawn:
            self.drawn.append([index] if isinstance(index, int) else index)
            yield _SeededIndex(index, mix(self.seed, self.number)) if self.workers else index
            self.number += 1


class _SeededIndex:
    """The indices of a batch. Unpickling them in a worker seeds its generators."""

    def __init__(self, index: Any, seed: int) -> None:
        self.index, self.seed = index, seed

    def __reduce__(self) -> tuple[Any, ...]:
        return _seed_and_return, (self.index, self.seed)


def _seed_and_return(index: Any, seed: int) -> Any:
    seed_process(seed)
    return index


def of_data() -> AbstractContextManager[Any]:
    """Return a context for drawing data, which changes nothing that a model of split tensors draws."""
    if not topology.splits():
        return nullcontext()
    from etude_libai.live.split import random

    return random.of_data()
