"""Passes over training data that can begin in the middle, and samples whose draws depend on their place alone.

What a sample draws in a data worker follows from (seed, rank, pass, batch, place in it). So a resumed run, with as many
workers or others, draws what it would have drawn; and no two epochs draw the same. Without workers samples draw from
the generators of the run, whose states are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from etude.data.seeds import kept_generators, mix, seed_process

Restart = Callable[[], None]
_OWN = frozenset({"_inner", "_key", "_skip", "_restart"})
_END = object()


class Drawn(list[Any]):
    """The indices of a batch. Whoever goes through them finds the generators seeded for each sample."""

    def __init__(self, indices: Iterable[Any], seed: int) -> None:
        super().__init__(indices)
        self.seed = seed

    def __iter__(self) -> Iterator[Any]:
        for place, index in enumerate(self[:]):
            seed_process(mix(self.seed, place))
            yield index

    def __reduce__(self) -> Any:
        return Drawn, (self[:], self.seed)


class Numbered(BatchSampler):
    """A loader's batch sampler in whose place it stands; :meth:`begin` says where its next pass begins.

    It is set once and stays, because persistent workers keep the sampler that they were started with.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._key: tuple[int, ...] | None = None
        self._skip = 0
        self._restart: Restart | None = None

    def begin(self, key: tuple[int, ...] | None, skip: int, restart: Restart | None) -> None:
        """Passes that begin now leave ``skip`` batches out and have their samples draw by ``key``, if there is one."""
        self._key, self._skip, self._restart = key, skip, restart

    def __iter__(self) -> Iterator[Any]:
        return self._batches(self._key, self._skip, self._restart)

    def _batches(self, key: tuple[int, ...] | None, skip: int, restart: Restart | None) -> Iterator[Any]:
        """Nothing is drawn before the first batch is asked for: torch's loader begins a pass twice and uses one."""
        for number, batch in enumerate(_behind(self._inner, skip, restart), start=skip):
            yield batch if key is None else Drawn(batch, mix(*key, number))

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._inner, name, value)


def begin(
    loader: Any, *, key: tuple[int, ...] | None = None, skip: int = 0, restart: Restart | None = None
) -> Iterator[Any]:
    """A pass over ``loader`` behind its first ``skip`` batches. Where these are lists of indices, only those are drawn.

    ``restart`` is called when the data ends among the batches to skip. With a ``key`` samples draw by it, and the
    generators of this process are left alone.
    """
    if not has_indices(loader):
        return _behind(loader, skip, restart) if skip else iter(loader)
    if not isinstance(loader.batch_sampler, Numbered):
        object.__setattr__(loader, "batch_sampler", Numbered(loader.batch_sampler))
        object.__setattr__(loader, "_iterator", None)  # workers that persist have the old one
    loader.batch_sampler.begin(key, skip, restart)
    batches = iter(loader)
    loader.batch_sampler.begin(None, 0, None)
    return _apart(batches) if key is not None and loader.num_workers == 0 else batches


def has_indices(loader: Any) -> bool:
    """Whether batches are lists of indices first, as those of torch's loader of a dataset with a length are."""
    return (
        isinstance(loader, DataLoader)
        and type(loader).__iter__ is DataLoader.__iter__
        and loader.batch_sampler is not None
        and not isinstance(loader.dataset, IterableDataset)
    )


def _behind(source: Iterable[Any], count: int, restart: Restart | None) -> Iterator[Any]:
    batches = iter(source)
    while count > 0:
        passed = sum(1 for _ in islice(batches, count))
        count -= passed
        if count > 0:
            if restart is None or passed == 0:
                break
            restart()
            batches = iter(source)
    return batches


def _apart(batches: Iterator[Any]) -> Iterator[Any]:
    """Batches whose making leaves the generators of this process alone, as workers do."""
    while True:
        with kept_generators():
            batch = next(batches, _END)
        if batch is _END:
            return
        yield batch
