"""The passes of a train loop over its data: what they need to be gone on with, and data that begins again and again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

from etude.data import position
from etude.data.resume import Snapshot
from etude.data.seeds import kept_generators
from etude.data.worker_states import from_tensors, to_tensors
from etude.dialects.mmengine.live.data.collate import is_element
from etude.dialects.mmengine.live.hooks.upkeep_hooks import set_epoch
from etude.dialects.mmengine.live.logging.history_buffer import HistoryBuffer
from etude.dialects.mmengine.live.logging.logger import print_log


class Passes:
    """Begins passes over the data of a ``loop``, and knows where the current one began."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._began: Mapping[str, Any] | None = None
        self._number = self._first = 0
        self._known: position.Workers | None = None
        self._resumed: Mapping[str, Any] | None = None

    def begin(self, number: int, skip: int = 0, restart: position.Restart | None = None) -> Iterator[Any]:
        """Pass ``number`` behind its first ``skip`` batches; the order is drawn as when the pass began, if known."""
        loop, resumed = self._loop, self._resumed
        self._resumed = None
        if resumed is not None and skip and int(resumed["number"]) == number and "began" in resumed:
            Snapshot.of(resumed["began"]).restore()
        self._began, self._number, self._first = Snapshot.take().state_dict(), number, loop.core.step - skip
        workers = self._workers
        new = workers.are_new(loop.dataloader, skip)
        with seed_for_workers(loop.dataloader, drawn=number == 0 or not workers.persist or new):
            return position.begin(
                loop.dataloader, workers=workers if workers.count else None, skip=skip, restart=restart
            )

    @property
    def _workers(self) -> position.Workers:
        """The data workers that the run began with; those that live through all passes get a seed once."""
        if self._known is None:
            loader = self._loop.dataloader
            self._known = position.Workers(_count(loader), persist=bool(getattr(loader, "persistent_workers", False)))
        return self._known

    def state_dict(self) -> dict[str, Any] | None:
        """The current pass; None before the first."""
        if self._began is None:
            return None
        self._workers.settle()
        return {
            "number": self._number,
            "first": self._first,
            "began": self._began,
            "workers": self._workers.count,
            "persistent": self._workers.persist,
            "states": {worker: to_tensors(state) for worker, state in self._workers.states.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in that pass, with the workers that it began with."""
        self._resumed = state
        here, before = _count(self._loop.dataloader), int(state.get("workers", 0))
        if here and (before == 0 or before % here):
            self._known = position.Workers(here, persist=bool(state["persistent"]))
            print_log(
                f"random numbers of samples: the run was begun with {before} data workers and now has {here}, so that "
                f"samples draw other numbers than they would have drawn",
                logger="current",
                level=logging.WARNING,
            )
        else:
            self._known = position.Workers(before, persist=bool(state["persistent"]))
            self._known.states = {int(worker): from_tensors(one) for worker, one in state.get("states", {}).items()}

    def resume_at(self, number: int, first: int) -> None:
        """Go on in pass ``number``, which began before iteration ``first``, with random numbers of this process."""
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
        torch.empty((), dtype=torch.int64).random_()
    if not drawn:
        loader.generator = torch.Generator()
    try:
        yield
    finally:
        loader.generator = None


class _InfiniteDataloaderIterator:
    """The batches of a dataloader again and again; samplers are reported each new pass.

    The first pass begins with the first batch that is asked for, so that a resumed run loads nothing without effect.
    """

    def __init__(self, dataloader: Any, passes: Passes | None = None) -> None:
        self._dataloader, self._passes = dataloader, passes
        self._iterator: Iterator[Any] | None = None
        self._epoch = 0
        if isinstance(dataloader, DataLoader) and dataloader.generator is None:
            torch.empty((), dtype=torch.int64).random_()  # what the original draws here, for its workers

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self._first_pass()
        try:
            return next(self._iterator)
        except StopIteration:
            self._next_pass()
            self._iterator = self._begin()
            return next(self._iterator)

    def skip(self, count: int) -> None:
        """Go on behind the first ``count`` batches, as if they had been taken."""
        known = None if self._passes is None else self._passes.resumed
        if known is None:
            self._iterator = self._first_pass(count)
            return
        self._epoch, first = known
        if self._epoch == 0:
            self._iterator = self._first_pass(count - first)
        else:
            set_epoch(self._dataloader, self._epoch)
            self._iterator = self._begin(count - first)

    def _first_pass(self, skip: int = 0) -> Iterator[Any]:
        with kept_generators():
            return self._begin(skip, restart=self._next_pass)

    def _begin(self, skip: int = 0, restart: position.Restart | None = None) -> Iterator[Any]:
        if self._passes is None:
            return position.begin(self._dataloader, skip=skip, restart=restart)
        return self._passes.begin(self._epoch, skip, restart)

    def _next_pass(self) -> None:
        if self._epoch == 0:
            print_log(
                "Reach the end of the dataloader, it starts again; an InfiniteSampler would avoid the restart",
                logger="current",
                level=logging.WARNING,
            )
        self._epoch += 1
        set_epoch(self._dataloader, self._epoch)


class ValLosses:
    """A last output that is a data element with ``loss`` alone in it is taken off and averaged over the pass."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.histories: dict[str, HistoryBuffer] = {}

    def __bool__(self) -> bool:
        return bool(self.histories)

    def take(self, outputs: Any) -> Any:
        """The predictions without the trailing losses; those are remembered."""
        last: Any = outputs[-1] if isinstance(outputs, list | tuple) and outputs else None
        if not is_element(last) or list(last.keys()) != ["loss"]:
            return outputs
        for name, value in dict(last.get("loss")).items():
            history = self.histories.setdefault(name, HistoryBuffer())
            for scalar in _scalars(name, value):
                history.append(scalar)
        return outputs[:-1]

    def means(self) -> dict[str, float]:
        """Each loss under its own name, and the sum of those called loss as ``val_loss`` or ``test_loss``."""
        means = {name: history.mean() for name, history in self.histories.items()}
        total = sum(value for name, value in means.items() if "loss" in name)
        return {**means, f"{self.stage}_loss": total}


def _scalars(name: str, value: Any) -> list[torch.Tensor]:
    """Return what is averaged: of a list each of its losses, while training takes their sum."""
    if isinstance(value, torch.Tensor):
        return [value.detach().mean()]
    if isinstance(value, list | tuple):
        return [item.detach().mean() for item in value]
    raise TypeError(f"{name} is not a tensor or a list of tensors")
