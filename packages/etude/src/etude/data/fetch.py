"""Turns a task into a batch: fetches, seeds and collates, and handles a sample that raises.

A :class:`Fetcher` runs in the process of the run or in a worker; it gives the same batch in both.
"""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.data.collate import stack
from etude.data.order import Task, share_of
from etude.data.samplers import Again
from etude.data.seeds import COLLATE, STREAM, Generator, generators, mix, mix_each, seed_process
from etude.errors import ConfigError, printable
from etude.errors.spelling import suggest

POLICIES = ("stop", "skip", "retry", "replace")
Collate = Callable[[list[Any]], Any]
_HERE = os.path.dirname(os.path.abspath(__file__))
#: So many samples are watched, to know which generators a dataset draws from.
_WATCHED = 16
#: Marks the state of a stream that came to its end within a batch; many datasets then say that they are at the start.
OVER = "over"


@dataclass
class Bad:
    """A sample that could not be loaded."""

    index: Any
    reason: str


@dataclass
class Fetched:
    """The outcome of a task. A failure crosses process borders as text, so that nothing of it is lost."""

    batch: Any = None
    bad: list[Bad] = field(default_factory=list)
    failure: str = ""
    #: Whether the dataset returned what no batch can be made of, and the failure says what.
    mistake: bool = False
    details: str = ""
    error: BaseException | None = None
    end: bool = False
    state: Any = None
    #: The sample that took longest, and the seconds, if a worker made the batch one by one.
    slowest: tuple[Any, float] | None = None
    weight: float = 1.0


class _Refused(Exception):
    """Ends a batch with the message that the run stops with. User code never raises it."""


class _Mistaken(_Refused):
    """Ends a batch because of what the dataset returned: whatever the sample, its code has to change."""


def offers(dataset: Any, method: str) -> bool:
    """Return whether ``method`` gives batches of this dataset: not if a subclass overrides ``__getitem__`` alone."""
    return callable(getattr(dataset, method, None)) and not _is_below(dataset, "__getitem__", method)


def never_draws(dataset: Any, maker: str = "__getitem__") -> bool:
    """Return whether a dataset declares that it never draws; a subclass with its own ``maker`` must declare it
    itself."""
    if not getattr(dataset, "deterministic", False):
        return False
    if _definers(dataset, "deterministic"):
        return not _is_below(dataset, maker, "deterministic")
    return len(_definers(dataset, maker)) <= 1  # no subclass has overridden it


def _is_below(dataset: Any, name: str, other: str) -> bool:
    """Return whether ``name`` is overridden, by a subclass or a mixin, where ``other`` is inherited."""
    names, others, order = _definers(dataset, name), _definers(dataset, other), type(dataset).__mro__
    return bool(names and others) and order.index(names[0]) < order.index(others[0])


def _definers(dataset: Any, name: str) -> list[type]:
    """Return the classes that define ``name``, the object's own first; torch's bases only raise."""
    kinds = type(dataset).__mro__
    return [kind for kind in kinds if name in vars(kind) and not kind.__module__.startswith("torch.utils.data")]


class Fetcher:
    """Makes batches of a map-style dataset.

    It uses the fastest method that the dataset has: ``fetch(indices: Tensor)`` returns a batch; ``__getitems__``
    returns a batch, or a list of samples; ``__getitem__`` returns a sample. Samples are collated, batches are not.

    Seeding three generators can take longer than reading a sample. So the first samples show which generators the
    dataset draws from, and only those are seeded from then on. If a later batch draws from another one, it is made
    again with that one seeded, too, and so are all batches after it. A dataset with ``deterministic = True`` never
    draws.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate: Collate | None = None,
        seed: int = 0,
        on_bad_sample: str = "stop",
        retries: int = 3,
    ) -> None:
        if on_bad_sample not in POLICIES:
            raise ConfigError(
                f"on_bad_sample: {on_bad_sample!r} is not a policy", hint=suggest(on_bad_sample, POLICIES)
            )
        self.dataset, self.seed, self.policy, self.retries = dataset, seed, on_bad_sample, retries
        self.collate: Collate = collate or stack
        self.fixed = collate is None and never_draws(dataset)
        self._take = self._way(collate)
        #: Whether to read the clock before each sample, for :meth:`slowest`.
        self.timed = False
        self._making: tuple[Sequence[Any], list[Any]] = ((), [])
        self._starts: list[float] = []
        self._set_epoch = getattr(dataset, "set_epoch", None)
        self._epoch: int | None = None
        self._generators = generators()
        self._drawn: set[Generator] = set()
        self._seeded, self._quiet = (), self._generators  # type: tuple[Generator, ...], tuple[Generator, ...]
        self._watched, self._looks = 0, []  # type: int, list[Any]
        self._seeders: tuple[Callable[[int], None], ...] = () if self.fixed else (self._watch,)

    def _way(self, collate: Collate | None) -> Callable[[Task, list[Bad]], Any]:
        if collate is None and offers(self.dataset, "fetch"):
            return self._by_tensor
        return self._by_list if offers(self.dataset, "__getitems__") else self._one_by_one

    def __call__(self, task: Task) -> Fetched:
        if task.epoch != self._epoch:
            self._begin_epoch(task.epoch)
        return self._guarded(task) if self.fixed else self._seeded_batch(task)

    def loading(self) -> Any:
        """Return the sample that is being loaded, for another thread of this process; None if that is not known."""
        indices, samples = self._making
        return indices[len(samples)] if len(samples) < len(indices) else None

    def slowest(self, task: Task) -> tuple[Any, float] | None:
        """Return the slowest sample of the task that was done last, and its seconds; None if that is not known."""
        starts, self._starts = [*self._starts, time.perf_counter()], []
        took = [after - before for before, after in pairwise(starts)]
        indices = _plain(task.indices)
        return (indices[took.index(max(took))], max(took)) if len(took) == len(indices) else None

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if self._set_epoch is not None:
            self._set_epoch(epoch)

    def _seeded_batch(self, task: Task) -> Fetched:
        """Return the outcome of a task whose samples may draw random numbers."""
        watching = self._watched < _WATCHED
        fetched, moved = self._kept(task)
        while moved and not watching:
            self._drawn |= moved
            self._settle()
            fetched, moved = self._kept(task)
        if watching and self._watched >= _WATCHED:
            self._settle()
        return fetched

    def _kept(self, task: Task) -> tuple[Fetched, set[Generator]]:
        """Return the outcome of the task and the generators that it moved; they are put back."""
        for generator in self._generators:
            generator.keep()
        try:
            fetched = self._guarded(task)
            self._look()
        finally:
            for generator in self._seeded:
                generator.put_back()
            moved = {generator for generator in self._quiet if generator.give_back()}
        return fetched, moved

    def _settle(self) -> None:
        """Seed only what the dataset draws from, from now on."""
        self._seeded = tuple(generator for generator in self._generators if generator in self._drawn)
        self._quiet = tuple(generator for generator in self._generators if generator not in self._drawn)
        self._seeders = tuple(generator.seed for generator in self._seeded)

    def _watch(self, number: int) -> None:
        """Seed all generators with ``number`` and, for the first samples, remember their states."""
        self._look()
        seed_process(number)
        self._watched += 1
        if self._watched <= _WATCHED:
            self._looks = [generator.look() for generator in self._generators]

    def _look(self) -> None:
        """Find out what was drawn from since the last seeding."""
        for generator, look in zip(self._generators, self._looks, strict=False):
            if generator.look() != look:
                self._drawn.add(generator)
        self._looks = []

    def _seed(self, *numbers: int) -> None:
        """Seed the generators for one call of user-defined code."""
        if self._seeders:
            number = mix(self.seed, *numbers)
            for seed in self._seeders:
                seed(number)

    def _guarded(self, task: Task) -> Fetched:
        bad: list[Bad] = []
        try:
            return Fetched(self._take(task, bad), bad, weight=task.weight)
        except Exception as error:
            return _failed(task, bad, error)

    # -- three ways to a batch -----------------------------------------------------------------------------------

    def _by_tensor(self, task: Task, bad: list[Bad]) -> Any:
        indices = torch.as_tensor(task.indices)
        if self._seeders:
            self._seed(task.epoch, int(indices[0]))
        try:
            return self.dataset.fetch(indices)
        except Exception as error:
            return self._after_failure(f"{type(self.dataset).__name__}.fetch", error, task, bad)

    def _by_list(self, task: Task, bad: list[Bad]) -> Any:
        indices = _plain(task.indices)
        self._seed(task.epoch, _number(indices[0]))
        try:
            got = self.dataset.__getitems__(indices)
        except Exception as error:
            return self._after_failure(f"{type(self.dataset).__name__}.__getitems__", error, task, bad)
        # A list of another length is a batch already, such as [inputs, targets].
        return self._collated(task, got) if isinstance(got, list) and len(got) == len(indices) else got

    def _after_failure(self, method: str, error: Exception, task: Task, bad: list[Bad]) -> Any:
        """Make the batch of single samples, which shows the bad one; warn if none is bad, because this way is slow."""
        batch = self._one_by_one(task, bad)
        if not bad:
            what = f"{type(error).__name__}: {printable(str(error))}"
            warnings.warn(f"{method} raised {what}; the batch was read sample by sample", stacklevel=2)
        return batch

    def _one_by_one(self, task: Task, bad: list[Bad]) -> Any:
        samples: list[Any] = []
        indices, dataset, seeders = _plain(task.indices), self.dataset, self._seeders
        self._making, self._starts = (indices, samples), []
        # An iterator: after a sample that raises, the loop resumes after it.
        todo = zip(indices, self._numbers(task.epoch, indices) if seeders else indices, strict=True)
        if self.timed:
            seeders = (lambda number: self._starts.append(time.perf_counter()), *seeders)
        while True:
            try:
                for index, number in todo:
                    for seed in seeders:
                        seed(number)
                    samples.append(dataset[index])
                break
            except Exception as error:
                samples.extend(self._instead(task, index, error, bad))
        self._making = ((), [])  # or the samples would live as long as their batch
        if not samples:
            raise _Refused(f"no sample of {task.place} could be loaded; the last error: {bad[-1].reason}")
        return self._collated(task, samples)

    def _numbers(self, epoch: int, indices: list[Any]) -> list[int]:
        """Return the seed of each sample."""
        # `Again` is an int, too, but its seed follows from its count as well.
        plain = {type(index) for index in indices} == {int}
        return mix_each((self.seed, epoch), indices if plain else [_signed(_number(index)) for index in indices])

    def _collated(self, task: Task, samples: list[Any]) -> Any:
        if self.collate is not stack:  # which draws nothing
            self._seed(task.epoch, COLLATE, task.batch)
        return collated(self.collate, samples, lambda: (_plain(task.indices), task.place))

    # -- a bad sample --------------------------------------------------------------------------------------------

    def _instead(self, task: Task, index: Any, error: Exception, bad: list[Bad]) -> list[Any]:
        """Replace a bad sample as the policy says: nothing, itself after some tries, or another one."""
        bad.append(Bad(index, _said(error)))
        for candidate in self._candidates(task, index):
            try:
                self._seed(task.epoch, _number(candidate))
                return [self.dataset[candidate]]
            except Exception as another:
                error = another
                bad.append(Bad(candidate, _said(error)))
        if self.policy != "skip":
            raise _Refused(f"sample {index} ({task.place}): {_said(error)}") from error
        return []

    def _candidates(self, task: Task, index: Any) -> Iterator[Any]:
        for attempt in range(1, self.retries + 1):
            if self.policy == "retry":
                time.sleep(0.02 * 2**attempt)
                yield index
            elif self.policy == "replace":
                yield mix(self.seed, task.epoch, _number(index), attempt) % len(self.dataset)


class StreamFetcher:
    """Makes batches of an iterable dataset.

    Each batch is drawn with a seed of (seed, epoch, position of its first sample). A dataset with ``state_dict`` is
    asked for its position after every batch and resumes there; another one is read again from the beginning of the
    epoch.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int,
        drop_last: bool = False,
        collate: Collate | None = None,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        self.dataset, self.batch_size, self.drop_last, self.seed = dataset, batch_size, drop_last, seed
        self.shard = shard
        self.collate: Collate = collate or stack
        self.fixed = collate is None and never_draws(dataset, "__iter__")
        self.stateful = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
        self._samples: Iterator[Any] = iter(())
        self._generators = () if self.fixed else generators()

    def __call__(self, task: Task) -> Fetched:
        for generator in self._generators:
            generator.keep()
        try:
            return self._guarded(task)
        finally:
            for generator in self._generators:
                generator.put_back()

    def _guarded(self, task: Task) -> Fetched:
        try:
            if task.state is not None:
                self._begin(task)
            return self._next(task)
        except _Mistaken as mistaken:
            return Fetched(failure="; ".join(mistaken.args), mistake=True, error=mistaken.__cause__)
        except _Refused as refused:
            error = refused.__cause__ or refused
            return Fetched(failure=str(refused), details=_traceback(error), error=error)
        except Exception as error:
            position = task.batch * self.batch_size
            failure = f"samples from {position} ({task.place}): {_said(error)}"
            return Fetched(failure=failure, details=_traceback(error), error=error)

    def _begin(self, task: Task) -> None:
        _, start, state = task.state
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(task.epoch)
        if isinstance(state, tuple):  # the last batch of the epoch was handed out: only its end is left
            if self.stateful:
                self.dataset.load_state_dict(state[1])
            self._samples = iter(())
            return
        if self.stateful and state is not None:
            self.dataset.load_state_dict(state)
        self._seed(task.epoch, STREAM)
        self._samples = iter(self.dataset)
        for batch in range(0 if state is not None else start):
            self._read(task.epoch, batch)

    def _seed(self, *numbers: int) -> None:
        if not self.fixed:
            seed_process(mix(self.seed, *numbers))

    def _read(self, epoch: int, batch: int) -> list[Any]:
        self._seed(epoch, batch * self.batch_size)
        return list(islice(self._samples, self.batch_size))

    def _next(self, task: Task) -> Fetched:
        samples = self._read(task.epoch, task.batch)
        if not samples or (self.drop_last and len(samples) < self.batch_size):
            return Fetched(end=True)
        if self.collate is not stack:
            self._seed(task.epoch, COLLATE, task.batch)
        state = self.dataset.state_dict() if self.stateful else None
        state = state if len(samples) == self.batch_size else (OVER, state)
        mine, weight = share_of(samples, self.shard)  # every rank reads all of a stream and takes its share
        batch = collated(self.collate, mine, lambda: (self._places(task, len(samples), len(mine)), task.place))
        return Fetched(batch, state=state, weight=weight)

    def _places(self, task: Task, whole: int, mine: int) -> range:
        """Return where in the epoch the samples of this rank stand."""
        first = task.batch * self.batch_size + self.shard[0] * whole // self.shard[1]
        return range(first, first + mine)


def collated(collate: Collate, samples: list[Any], where: Callable[[], tuple[Sequence[Any], str]]) -> Any:
    """Collate ``samples``. If their shapes differ, name the sample that does not fit.

    ``where`` returns the indices of the samples and the place of the batch; it is called only for that message.
    """
    try:
        return collate(samples)
    except Exception as error:
        indices, place = where()
        wrong = next((number for number, sample in enumerate(samples) if no_part(sample)), None)
        if wrong is not None and collate is stack:
            raise _Mistaken(*_said_of(samples[wrong], indices[wrong] if wrong < len(indices) else wrong)) from error
        forms = [_form(sample) for sample in samples]
        usual = max(forms, key=forms.count)
        other = next((number for number, form in enumerate(forms) if form != usual), None)
        if other is None or len(indices) != len(samples):
            raise
        raise _Refused(
            f"the samples of {place} do not make a batch: sample {indices[other]} is {forms[other]}, "
            f"others are {usual}; collate: Pad fills up sequences, collate: Lists keeps samples apart"
        ) from error


def no_part(sample: Any) -> Any:
    """Return the first thing in a sample that no batch can be made of, in a tuple; None if there is none.

    >>> no_part((torch.zeros(2), 1, "a")), no_part({"x": None})
    (None, (None,))
    """
    if isinstance(sample, Mapping):
        return next((found for value in sample.values() if (found := no_part(value))), None)
    if isinstance(sample, tuple | list):
        return next((found for value in sample if (found := no_part(value))), None)
    fits = isinstance(sample, Tensor | int | float | str | bytes | np.ndarray | np.generic)
    return None if fits else (sample,)


def _said_of(sample: Any, index: Any) -> tuple[str, str]:
    """Return what a dataset returned, and what is expected of it."""
    (wrong,) = no_part(sample)
    kind = type(wrong)
    if kind.__module__.startswith("PIL."):
        hint = "a picture of PIL is no tensor yet: torchvision.transforms.functional.to_tensor makes one of it"
    else:
        hint = "a sample is a tensor, a number or an array, or a tuple or mapping of these"
    return f"returned {_form(sample)} for sample {index}", hint


def _form(sample: Any) -> str:
    """Return type and shape, for messages.

    >>> _form((torch.zeros(2, 3), 1)), _form({"ids": torch.zeros(4)}), _form(None)
    ('(2×3, int)', '{ids: 4}', 'None')
    """
    if isinstance(sample, Mapping):
        return "{" + ", ".join(f"{key}: {_form(value)}" for key, value in sample.items()) + "}"
    if isinstance(sample, tuple | list):
        return "(" + ", ".join(_form(value) for value in sample[:8]) + (", …)" if len(sample) > 8 else ")")
    shape = getattr(sample, "shape", None)
    if shape is not None and len(shape):
        return "×".join(str(size) for size in shape)
    return "None" if sample is None else "a number" if shape is not None else type(sample).__name__


def _plain(indices: Any) -> list[Any]:
    return indices.tolist() if isinstance(indices, Tensor) else list(indices)


def _number(index: Any) -> int:
    """Return a number for an index of any kind; strings and tuples must not depend on Python's hash seed."""
    if type(index) is Again:
        return mix(int(index), index.count)
    return index if isinstance(index, int) else mix(*repr(index).encode())


def _signed(number: int) -> int:
    """Return the last 64 bits as a signed number."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _failed(task: Task, bad: list[Bad], error: Exception) -> Fetched:
    """Return the outcome of a task that raised: a message, and the traceback of the user-defined code."""
    if isinstance(error, _Refused):
        message, cause = str(error), error.__cause__ or error
        if isinstance(error, _Mistaken):
            return Fetched(bad=bad, failure="; ".join(error.args), mistake=True, error=cause)
    else:
        message, cause = f"{task.place}: {_said(error)}", error
    return Fetched(bad=bad, failure=message, details=_traceback(cause), error=cause)


def _said(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _traceback(error: BaseException) -> str:
    """Format a traceback as Python does, without Étude's own frames."""
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list([f for f in shown.stack if not f.filename.startswith(_HERE)])
    return "".join(shown.format())
