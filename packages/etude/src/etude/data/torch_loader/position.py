"""Starts a pass over training data in its middle.

Without data workers samples draw from the generators of the run, whose states are saved. With workers every batch says
whose it is and brings back where that worker's generators stand, see ``worker_states.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from etude.data.seeds import kept_generators
from etude.data.torch_loader.worker_states import Desk, Drawn, Init, Made, StartWorker, State, Turn

Restart = Callable[[], None]
_OWN = frozenset({"_inner", "_workers", "_skip", "_restart", "_lend", "_asked", "_note", "taken"})
_END = object()


class Workers:
    """Tracks the ``count`` data workers of a run: the generator states of each after its last batch that was taken.

    Workers that ``persist`` resume from pass to pass, others start again with each.
    """

    def __init__(self, count: int, *, persist: bool) -> None:
        self.count, self.persist = count, persist
        #: Whether they have been started, in this process or in the one that it resumes.
        self.started = False
        self.states: dict[int, State] = {}
        #: The loader, once a hook has gone over it on its own: its workers have drawn more than the run has taken.
        self.lent: Any = None
        self._begun_here = False

    def are_new(self, loader: Any, skip: int) -> bool:
        """Return whether a hook has thrown away the workers that persist, and forget where those stood.

        ``YOLOXModeSwitchHook`` does so, because they have a copy of the old pipeline: it takes torch's iterator away,
        and marks the loader as not made yet, which also shows in a resumed run.
        """
        begun, self._begun_here = self._begun_here, True
        if not self.persist or skip or not isinstance(loader, DataLoader):
            return False
        new = (begun and loader._iterator is None) or not vars(loader).get("_DataLoader__initialized", True)
        if new:
            self.states.clear()
            self.lent = None
        return new

    def begin(self, skip: int) -> None:
        """Begin a pass; after ``skip`` batches the states are those of a resumed run."""
        self.finish()
        if not self.persist and not skip:
            self.states.clear()

    def turn(self, number: int, skip: int) -> Turn:
        """Return the turn of batch ``number`` of a pass that began after ``skip`` batches."""
        worker, first = number % self.count, number - skip < self.count
        state = self.states.get(worker) if first else None
        return Turn(worker, state, fresh=first and state is None and not self.persist)

    def lend(self, loader: Any) -> None:
        """Record that something other than the run, such as ``PreciseBNHook``, takes batches of persistent workers."""
        self.lent = loader

    def finish(self) -> None:
        """Ask lent workers for their generator states.

        The answers come after batches that were prepared in vain; these count in the original, too.
        """
        loader, self.lent = self.lent, None
        if loader is not None and loader._iterator is not None:
            with kept_generators():
                loader.batch_sampler.ask(self)
                for made in loader:
                    self.take(made)

    def take(self, made: Made) -> Any:
        """Return the batch, and keep the position of its worker."""
        self.states[made.worker] = made.state
        return made.batch


def _ignore(batch: Any) -> None:
    """Do nothing: the pass is not the run's."""


class Numbered(BatchSampler):
    """Replaces a loader's batch sampler; :meth:`begin` sets where its next pass begins.

    It is set once and stays, because persistent workers keep the sampler that they were started with.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._workers: Workers | None = None
        self._skip = 0
        self._restart: Restart | None = None
        self._lend: Restart | None = None
        self._asked: Workers | None = None
        self._note: Callable[[Any], None] = _ignore
        #: The batch that the run has taken last, as indices.
        self.taken: Any = None

    def lend(self, note: Restart | None) -> None:
        """Call ``note`` when a pass begins that :meth:`begin` has not announced."""
        self._lend = note

    def ask(self, workers: Workers) -> None:
        """Make the next pass one question to each of ``workers``."""
        self._asked = workers

    def begin(
        self, workers: Workers | None, skip: int, restart: Restart | None, note: Callable[[Any], None] = _ignore
    ) -> None:
        """Let passes that begin now skip ``skip`` batches and hand their batches to ``workers``, if there are any.

        ``note`` is called with the indices of each batch that is drawn.
        """
        self._workers, self._skip, self._restart, self._note = workers, skip, restart, note

    def take(self, batch: Any) -> None:
        """Note that the run has taken a batch of these indices."""
        self.taken = batch

    def __iter__(self) -> Iterator[Any]:
        asked, self._asked = self._asked, None
        if asked is not None:
            return iter([self._to(Turn(worker), []) for worker in range(asked.count)])
        # Read now: the generator begins later, when another pass may have been announced.
        return self._batches(self._workers, self._skip, self._restart, self._note)

    def _to(self, turn: Turn, batch: Any) -> Drawn:
        drawn = Drawn(batch)
        drawn.turn = turn
        return drawn

    def _batches(
        self, workers: Workers | None, skip: int, restart: Restart | None, drawn: Callable[[Any], None]
    ) -> Iterator[Any]:
        """Draw nothing before the first batch is requested: torch's loader begins a pass twice and uses one."""
        if workers is None and self._lend is not None:
            self._lend()
        for number, batch in enumerate(_behind(self._inner, skip, restart), start=skip):
            drawn(batch)
            yield batch if workers is None else self._to(workers.turn(number, skip), batch)

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
    loader: Any, *, workers: Workers | None = None, skip: int = 0, restart: Restart | None = None
) -> Iterator[Any]:
    """Yield a pass over ``loader`` after its first ``skip`` batches. If batches are lists of indices, only these are
    drawn.

    ``restart`` is called when the data ends among the batches to skip. With ``workers`` samples draw from theirs, and
    the generators of this process are left alone.
    """
    if not has_indices(loader):
        return _behind(loader, skip, restart) if skip else iter(loader)
    if not isinstance(loader.batch_sampler, Numbered):
        # Past torch's loader, which refuses another sampler once it is made.
        object.__setattr__(loader, "batch_sampler", Numbered(loader.batch_sampler))
        object.__setattr__(loader, "_iterator", None)  # workers that persist have the old one
    if loader.num_workers == 0:
        # A batch is drawn when it is taken.
        batches = _begun(loader, None, skip, restart, loader.batch_sampler.take)
        if workers is None:
            return batches
        workers.begin(skip)
        return _in_this_process(batches, workers, skip, loader.worker_init_fn)
    # Workers are asked for batches ahead of the one that is taken.
    asked: deque[Any] = deque()
    if workers is None:
        return Taken(_begun(loader, None, skip, restart, asked.append), None, loader.batch_sampler, asked)
    workers.begin(skip)
    if not isinstance(loader.worker_init_fn, StartWorker):
        loader.worker_init_fn = StartWorker(loader.worker_init_fn)
    lasting = workers.persist and loader.persistent_workers and workers.count == loader.num_workers
    loader.batch_sampler.lend(partial(workers.lend, loader) if lasting else None)
    return Taken(_begun(loader, workers, skip, restart, asked.append), workers, loader.batch_sampler, asked)


def taken_from(loader: Any) -> Any:
    """Return the indices of the batch that a run has taken last from a torch loader; None if they are unknown."""
    sampler = getattr(loader, "batch_sampler", None)
    return sampler.taken if isinstance(sampler, Numbered) else None


def _begun(
    loader: Any, workers: Workers | None, skip: int, restart: Restart | None, note: Callable[[Any], None]
) -> Iterator[Any]:
    loader.batch_sampler.begin(workers, skip, restart, note)
    batches: Iterator[Any] = iter(loader)
    # This pass has what it needs. One that begins without `begin`, by a hook, is not the run's.
    loader.batch_sampler.begin(None, 0, None)
    return batches


class Taken:
    """Yields the batches of a pass and keeps the states of their workers. All other attributes are those of torch's
    iterator."""

    def __init__(
        self,
        batches: Iterator[Any],
        workers: Workers | None,
        order: Numbered | None = None,
        asked: deque[Any] | None = None,
    ) -> None:
        self._batches, self._workers, self._order, self._asked = batches, workers, order, asked

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        made = next(self._batches)
        if self._asked and self._order is not None:
            self._order.take(self._asked.popleft())
        return self._workers.take(made) if self._workers is not None and isinstance(made, Made) else made

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)


def _in_this_process(batches: Iterator[Any], workers: Workers, skip: int, init: Init) -> Iterator[Any]:
    """Yield batches as the workers of a resumed run would make them, and leave the generators of this process alone."""
    desk = Desk(init, base_seed=0)
    for number in count(skip):
        with kept_generators():
            made = desk.make(workers.turn(number, skip), lambda: next(batches, _END))
        if made.batch is _END:
            return
        yield workers.take(made)


def has_indices(loader: Any) -> bool:
    """Return whether batches are lists of indices first, as those of torch's loader of a dataset with a length are."""
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
