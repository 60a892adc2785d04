"""What an exact resume needs beside mmcv's own layout: random numbers, the position in the data and in the workflow.

A checkpoint carries it under the top-level key ``etude``, which mmcv does not look at. What happens between the save
and the end of its stage (an evaluation, say) is noted afterwards in a small file beside it; when that file is missing,
the run died in between, and a resumed run first does again what was left to do.
"""

from __future__ import annotations

import glob
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from etude.checkpoint.formats import foreign
from etude.checkpoint.storage import disk
from etude.data import position
from etude.data.resume import Snapshot, own_states, restore_own
from etude.data.worker_states import from_tensors, to_tensors
from etude.dialects.mmcv1.live.workers import EpochSeeds
from etude.errors import ResumeError

KEY = "etude"
VERSION = 1
#: Folder beside the checkpoints for the notes about them.
NOTES = ".etude"
#: The attribute of a loader that holds its workers.
_WORKERS = "_etude_workers"


def rng_state() -> dict[str, Any]:
    """Return the states of all generators of this process, as plain data and tensors."""
    return Snapshot.take().state_dict()


def set_rng_state(state: Mapping[str, Any] | None) -> None:
    """Put the generators back; None, where nobody knows how they were, leaves them."""
    if state is not None:
        Snapshot.of(state).restore()


def workers_of(loader: Any) -> position.Workers | None:
    """Return the data workers of a loader; None where it has none, or where they are seeded anew at every pass."""
    if not position.has_indices(loader) or not loader.num_workers or isinstance(loader.batch_sampler, EpochSeeds):
        return None
    known: position.Workers | None = vars(loader).get(_WORKERS)
    if known is None:
        known = position.Workers(loader.num_workers, persist=loader.persistent_workers)
        vars(loader)[_WORKERS] = known
    return known


def worker_states(loader: Any) -> dict[str, Any]:
    """Return where the generators of a loader's workers stand, for a checkpoint."""
    workers = workers_of(loader)
    if workers is None:
        return {}
    workers.settle()
    return {"started": workers.started, "states": {at: to_tensors(state) for at, state in workers.states.items()}}


def set_worker_states(loader: Any, saved: Mapping[str, Any]) -> None:
    """Let the workers of a loader that has not begun yet resume from ``saved``."""
    workers = workers_of(loader)
    if workers is not None and saved:
        workers.started = bool(saved["started"])
        workers.states = {int(at): from_tensors(state) for at, state in saved["states"].items()}


def begin(loader: Any, skip: int = 0) -> Any:
    """Begin a pass over ``loader``, behind ``skip`` batches where it has workers."""
    workers = workers_of(loader)
    if workers is None:
        return iter(loader)
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
class Pass:
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
        """The next batch may be the first one: look at the generators, if they may have moved since the start."""
        if not (self.taken or self.at_once):
            self.first = Snapshot.take()

    def draw(self, batches: Iterator[Any]) -> Any:
        """The next batch."""
        self.begin()
        batch = next(batches)
        self.taken += 1
        return batch

    def state(self) -> dict[str, Any]:
        first = self.first.state_dict() if self.first is not None else None
        state = {"rng": self.start.state_dict(), "first_rng": first, "taken": self.taken, "own": self.own}
        return {**state, "lasting": self.lasting}


def replay(loader: Any, saved: Mapping[str, Any]) -> tuple[Any, Pass]:
    """The iterator of a saved pass at the position it had; the caller puts the generators right afterwards.

    The order of samples, and what workers draw, follow from the generators at the start of the pass.
    """
    set_rng_state(saved["rng"])
    restore_own(loader, saved.get("own", ()))
    workers = workers_of(loader)
    if workers is not None:
        workers.started = bool(saved.get("lasting"))
    current = Pass(loader, at_once=saved["first_rng"] is None)
    if workers is not None and workers.states:
        current.taken = int(saved["taken"])
        return begin(loader, skip=current.taken), current
    batches = begin(loader)
    set_rng_state(saved["first_rng"])
    for _ in range(int(saved["taken"])):
        current.draw(batches)
    return batches, current


def new_id() -> str:
    return uuid.uuid4().hex


def write_note(path: str, note: Mapping[str, Any]) -> None:
    """Note what the stage of the checkpoint at ``path`` has changed since it was saved."""
    _write_beside(_note_path(path), note)


def read_note(path: str, identity: str) -> dict[str, Any] | None:
    """The note about the checkpoint at ``path``, if there is one and it is about this very file."""
    target = _note_path(os.path.realpath(path))
    if not os.path.isfile(target):
        return None
    try:
        note = foreign.read(target)
    except ResumeError:
        return None
    return note if note.get("id") == identity else None


def remove_note(path: str) -> None:
    disk.remove(_note_path(path))


def write_own(path: str, rank: int, state: Mapping[str, Any]) -> None:
    """Write what one of the other ranks knows of the checkpoint that the first one saved at ``path``."""
    _write_beside(_own_path(path, rank), state)


def read_own(path: str, rank: int, position: Sequence[Any]) -> dict[str, Any] | None:
    """The own part of ``rank``, if there is one and it was saved at the same position."""
    target = _own_path(os.path.realpath(path), rank)
    try:
        own: dict[str, Any] = foreign.read(target) if os.path.isfile(target) else {}
    except ResumeError:
        return None
    return own if own.get("position") == list(position) else None


def remove_all(path: str) -> None:
    """The note about a checkpoint that was deleted, and the other ranks' parts of it."""
    remove_note(path)
    for part in glob.glob(glob.escape(_own_path(path, 0)[:-1]) + "*"):
        disk.remove(part)


def _write_beside(target: str, content: Mapping[str, Any]) -> None:
    """Whoever may read the checkpoint may read what stands beside it."""
    disk.make_folder(os.path.dirname(target), mode=0o777)
    disk.write_atomically(target, lambda file: torch.save(dict(content), file), mode=0o666)


def _own_path(path: str, rank: int) -> str:
    return f"{_note_path(path).removesuffix('.note')}.rank{rank}"


def _note_path(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, NOTES, f"{name}.note")
