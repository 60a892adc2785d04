"""Begins, saves and resumes passes over loaders whose workers have generators of their own.

mmcv 1.x has several loaders, each with a :class:`LoaderPass` at a time; MMEngine has one, and :class:`Passes` over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader

from etude.data.resume import Snapshot, own_states, restore_own
from etude.data.torch_loader import position
from etude.data.torch_loader.epoch_seeds import EpochSeeds
from etude.data.torch_loader.worker_states import from_tensors, to_tensors

#: The attribute of a loader that holds its workers.
_WORKERS = "_etude_workers"


def set_rng_state(state: Mapping[str, Any] | None) -> None:
    """Restore the generators; None, where their states are unknown, leaves them."""
    if state is not None:
        Snapshot.of(state).restore()


def workers_of(loader: Any) -> position.Workers | None:
    """Return the data workers of a loader; None where it has none, or where they are seeded anew at every pass."""
    if not position.has_indices(loader) or not loader.num_workers or _is_seeded_by_epoch(loader.batch_sampler):
        return None
    known: position.Workers | None = vars(loader).get(_WORKERS)
    if known is None:
        known = position.Workers(loader.num_workers, persist=loader.persistent_workers)
        vars(loader)[_WORKERS] = known
    return known


def _is_seeded_by_epoch(order: Any) -> bool:
    return isinstance(order, EpochSeeds) or isinstance(getattr(order, "_inner", None), EpochSeeds)


def worker_states(loader: Any) -> dict[str, Any]:
    """Return where the generators of a loader's workers stand, for a checkpoint."""
    workers = workers_of(loader)
    if workers is None:
        return {}
    workers.finish()
    return {"started": workers.started, "states": {at: to_tensors(state) for at, state in workers.states.items()}}


def set_worker_states(loader: Any, saved: Mapping[str, Any]) -> None:
    """Let the workers of a loader that has not begun yet resume from ``saved``."""
    workers = workers_of(loader)
    if workers is not None and saved:
        workers.started = bool(saved["started"])
        workers.states = {int(at): from_tensors(state) for at, state in saved["states"].items()}


def begin(loader: Any, skip: int = 0) -> Any:
    """Begin a pass over ``loader``, after ``skip`` batches where it has workers."""
    workers = workers_of(loader)
    if workers is None:
        return position.begin(loader)
    new = workers.are_new(loader, skip)
    seeded, workers.started = workers.persist and workers.started and not new, True
    with no_seed_drawn(loader) if seeded else nullcontext():
        return position.begin(loader, workers=workers, skip=skip)


@contextmanager
def no_seed_drawn(loader: Any) -> Iterator[None]:
    """Keep the run's generators as they are while new processes stand in for workers that have their seed.

    Torch draws a seed whenever it starts workers. Those that persist were started in the run that is resumed.
    """
    kept, loader.generator = loader.generator, torch.Generator()
    try:
        yield
    finally:
        loader.generator = kept


def has_seed(loader: Any) -> bool:
    """Return whether persistent workers of ``loader`` have been started, here or in the run that is resumed."""
    workers = workers_of(loader)
    return workers is not None and workers.persist and (workers.started or loader._iterator is not None)


def take_no_seed(loader: Any) -> None:
    """Let the persistent workers of ``loader`` start without a seed of the run: see :func:`no_seed_drawn`."""
    workers = workers_of(loader)
    if workers is not None and workers.persist:
        workers.started = True
        loader.generator = torch.Generator()


@dataclass
class LoaderPass:
    """One pass over a loader: the generators at its start and at its first batch, and how many batches were taken.

    Samplers choose their order at the first batch, workers their seeds at the start. ``at_once``: the first batch is
    drawn right after the start, so that the generators need not be looked at twice.
    """

    loader: Any
    start: Snapshot = field(default_factory=Snapshot.take)
    own: list[torch.Tensor] = field(default_factory=list)
    first: Snapshot | None = None
    taken: int = 0
    at_once: bool = False
    #: Whether the workers had been started before this pass.
    lasting: bool = False

    def __post_init__(self) -> None:
        self.own = own_states(self.loader)
        workers = workers_of(self.loader)
        self.lasting = workers is not None and workers.started

    def begin(self) -> None:
        """Look at the generators before the first batch, if they may have moved since the start."""
        if not (self.taken or self.at_once):
            self.first = Snapshot.take()

    def draw(self, batches: Iterator[Any]) -> Any:
        """Return the next batch."""
        self.begin()
        batch = next(batches)
        self.taken += 1
        return batch

    def state(self) -> dict[str, Any]:
        first = self.first.state_dict() if self.first is not None else None
        state = {"rng": self.start.state_dict(), "first_rng": first, "taken": self.taken, "own": self.own}
        return {**state, "lasting": self.lasting}


def replay(loader: Any, saved: Mapping[str, Any]) -> tuple[Any, LoaderPass]:
    """Return the iterator of a saved pass at the position it had; the caller restores the generators afterwards.

    The order of samples, and what workers draw, follow from the generators at the start of the pass.
    """
    set_rng_state(saved["rng"])
    restore_own(loader, saved.get("own", ()))
    workers = workers_of(loader)
    if workers is not None:
        workers.started = bool(saved.get("lasting"))
    current = LoaderPass(loader, at_once=saved["first_rng"] is None)
    if workers is not None and workers.states:
        current.taken = int(saved["taken"])
        return begin(loader, skip=current.taken), current
    batches = begin(loader)
    set_rng_state(saved["first_rng"])
    for _ in range(int(saved["taken"])):
        current.draw(batches)
    return batches, current


class Passes:
    """Begins the passes of a run over its data, and knows where the current one began.

    ``loader`` returns the run's loader, ``step`` the number of steps that are done. ``warn`` reports what cannot be
    repeated exactly.
    """

    def __init__(self, loader: Callable[[], Any], step: Callable[[], int], warn: Callable[[str], None]) -> None:
        self._loader, self._step, self._warn = loader, step, warn
        self._began: Mapping[str, Any] | None = None
        self._number = self._first = 0
        self._known: position.Workers | None = None
        self._resumed: Mapping[str, Any] | None = None

    def begin(self, number: int, skip: int = 0, restart: position.Restart | None = None) -> Iterator[Any]:
        """Begin pass ``number`` after its first ``skip`` batches, in the order that it began with, if known."""
        loader, resumed = self._loader(), self._resumed
        self._resumed = None
        if resumed is not None and skip and int(resumed["number"]) == number and "began" in resumed:
            Snapshot.of(resumed["began"]).restore()
        self._began, self._number, self._first = Snapshot.take().state_dict(), number, self._step() - skip
        workers = self._workers
        new = workers.are_new(loader, skip)
        with seed_for_workers(loader, drawn=number == 0 or not workers.persist or new):
            return position.begin(loader, workers=workers if workers.count else None, skip=skip, restart=restart)

    @property
    def _workers(self) -> position.Workers:
        """The data workers that the run began with; those that live through all passes get a seed once."""
        if self._known is None:
            loader = self._loader()
            self._known = position.Workers(_count(loader), persist=bool(getattr(loader, "persistent_workers", False)))
        return self._known

    def state_dict(self) -> dict[str, Any] | None:
        """Return the current pass; None before the first."""
        if self._began is None:
            return None
        self._workers.finish()
        return {
            "number": self._number,
            "first": self._first,
            "began": self._began,
            "workers": self._workers.count,
            "persistent": self._workers.persist,
            "states": {worker: to_tensors(state) for worker, state in self._workers.states.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume that pass, with the workers that it began with."""
        self._resumed = state
        here, before = _count(self._loader()), int(state.get("workers", 0))
        if here and (before == 0 or before % here):
            self._known = position.Workers(here, persist=bool(state["persistent"]))
            self._warn(
                f"random numbers of samples: the run was begun with {before} data workers and now has {here}, so that "
                f"samples draw other numbers than they would have drawn"
            )
        else:
            self._known = position.Workers(before, persist=bool(state["persistent"]))
            self._known.states = {int(worker): from_tensors(one) for worker, one in state.get("states", {}).items()}

    def resume_at(self, number: int, first: int) -> None:
        """Resume in pass ``number``, which began before iteration ``first``, with random numbers of this process."""
        self._resumed = {"number": number, "first": first}

    @property
    def current(self) -> tuple[int, int] | None:
        """The number and the first iteration of the pass that this process is in, or resumes; None before the first."""
        return self.resumed or (None if self._began is None else (self._number, self._first))

    @property
    def resumed(self) -> tuple[int, int] | None:
        """The number and the first iteration of the pass that a resumed run was in."""
        return None if self._resumed is None else (int(self._resumed["number"]), int(self._resumed["first"]))


def _count(loader: Any) -> int:
    return int(getattr(loader, "num_workers", 0))


@contextmanager
def seed_for_workers(loader: Any, *, drawn: bool) -> Iterator[None]:
    """Let the beginning of a pass draw a seed from the run's generator, or not, whatever the loader would do."""
    if not isinstance(loader, DataLoader) or loader.generator is not None:
        yield
        return
    goes_on = loader.persistent_workers and getattr(loader, "_iterator", None) is not None
    if drawn and goes_on:
        # New workers would take a seed here. Those that persist do not, and the numbers of the run would shift.
        torch.empty((), dtype=torch.int64).random_()
    if not drawn:
        loader.generator = torch.Generator()
    try:
        yield
    finally:
        loader.generator = None
