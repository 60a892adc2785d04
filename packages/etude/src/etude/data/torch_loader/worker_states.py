"""Saves and restores the random generators of data workers.

In mmcv and MMEngine a worker is seeded once, when it starts, so that its first sample decides what the second one
draws. Here every batch brings the generator states of its worker back to the run, and a checkpoint saves them. A worker
is a number, not a process: a resumed run may have fewer processes, or none, as long as each worker fits into one.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from etude import torch_private
from etude.fast_dataclass import record

#: Python's words and cached normal, numpy's keys, position, flag and cached normal, torch's state.
State = tuple[bytes, float | None, bytes, int, int, float, bytes]
Init = Callable[[int], None] | None


def current_state() -> State:
    """Return where the generators of this process stand, in types that are cheap to send."""
    _, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=True)
    _, keys, position, has_gauss, cached = numpy_state
    own = torch.default_generator.get_state().numpy().tobytes()
    return array("I", words).tobytes(), gauss, keys.tobytes(), position, has_gauss, cached, own


def restore(state: State) -> None:
    """Set the generators of this process to ``state``."""
    words, gauss, keys, position, has_gauss, cached, own = state
    random.setstate((3, tuple(array("I", words)), gauss))
    np.random.set_state(("MT19937", np.frombuffer(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.default_generator.set_state(torch.frombuffer(bytearray(own), dtype=torch.uint8))


def to_tensors(state: State) -> list[Any]:
    """Return ``state`` for a checkpoint."""
    return [torch.frombuffer(bytearray(item), dtype=torch.uint8) if isinstance(item, bytes) else item for item in state]


def from_tensors(saved: list[Any]) -> State:
    """Return what :func:`to_tensors` was given."""
    items = [item.cpu().numpy().tobytes() if isinstance(item, torch.Tensor) else item for item in saved]
    return tuple(items)  # type: ignore[return-value]


@record
class Turn:
    """Names the worker of a batch; ``state`` is set if that worker resumes, ``fresh`` if it starts again."""

    worker: int
    state: State | None = None
    fresh: bool = False


class Drawn(list[Any]):
    """The indices of a batch, and the worker whose generators its samples draw from."""

    turn: Turn

    def __reduce__(self) -> Any:
        return _drawn, (list(self), self.turn)


def _drawn(indices: list[Any], turn: Turn) -> Drawn:
    made = Drawn(indices)
    made.turn = turn
    return made


@dataclass
class Made:
    """A batch, and the generator states of its worker after it."""

    batch: Any
    worker: int
    state: State

    def pin_memory(self) -> Made:
        return Made(torch_private.pinned(self.batch), self.worker, self.state)


class Desk:
    """The workers whose batches this process makes; it switches between their generators."""

    def __init__(self, init: Init, base_seed: int, current: int | None = None) -> None:
        self._init, self._base_seed, self._current = init, base_seed, current
        self._states: dict[int, State] = {}

    def make(self, turn: Turn, make: Callable[[], Any]) -> Made:
        """Call ``make`` with the generators of the worker whose turn it is."""
        if turn.state is not None:
            restore(turn.state)
        elif turn.fresh and turn.worker in self._states:
            self._start(turn.worker)
        elif turn.worker in self._states and turn.worker != self._current:
            restore(self._states[turn.worker])
        elif turn.worker != self._current:
            self._start(turn.worker)
        self._current = turn.worker
        batch = make()
        self._states[turn.worker] = state = current_state()
        return Made(batch, turn.worker, state)

    def _start(self, worker: int) -> None:
        """Seed the generators as torch seeds a new worker, then as the loader's own function does."""
        seed = self._base_seed + worker
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        if self._init is not None:
            self._init(worker)


class StartWorker:
    """The ``worker_init_fn`` of a loader whose batches may carry a turn."""

    def __init__(self, init: Init) -> None:
        self.init = init

    def __call__(self, worker: int) -> None:
        base_seed = torch.initial_seed() - worker
        if self.init is not None:
            self.init(worker)
        desk = Desk(self.init, base_seed, current=worker)
        make = torch_private.fetch_of_workers()

        def fetch_in_turn(fetcher: Any, indices: Any) -> Any:
            if not isinstance(indices, Drawn):
                return make(fetcher, indices)
            # Without indices it is a question for the state.
            return desk.make(indices.turn, lambda: make(fetcher, list(indices)) if indices else None)

        torch_private.set_fetch_of_workers(fetch_in_turn)
