"""Loads a dataset in batches. Order, random numbers and position follow from (seed, epoch, batch)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice, tee
from typing import Any

from torch.utils.data import IterableDataset

from etude.data.fetch import Collate, Fetched, Fetcher, StreamFetcher
from etude.data.fingerprint import fingerprints_of, mark_of
from etude.data.order import Indexed, Parts, Sampled, SampledBatches, Shared, Source, Streamed, Task
from etude.data.to_device import ahead, move
from etude.data.workers import Pool
from etude.errors import ConfigError, DataError, SampleError, printable
from etude.errors.own_code import who

_log = logging.getLogger("etude.data")


def is_stream(dataset: Any) -> bool:
    """Return whether the data can only be iterated, in its own order."""
    return not hasattr(dataset, "__getitem__") or isinstance(dataset, IterableDataset)


#: More processes than these bring a machine down.
MOST_WORKERS = 1024


class Loader:
    """Loads batches; one iteration is one epoch.

    The order is a permutation drawn from (seed, epoch), and what a sample draws depends on (seed, epoch, index). So the
    batches are the same with any number of ``workers``, the generators of the run are left alone, and
    :meth:`load_state_dict` continues in the middle of an epoch without replaying what came before.

    ``set_epoch`` says which epoch comes next; without it, epochs follow one another. ``limit`` ends every epoch after
    so many batches. With ``parts``, each batch comes as a list of so many, made apart: one for each virtual rank.

    >>> from etude.data.datasets.tensors import TensorData
    >>> import torch
    >>> loader = Loader(TensorData(torch.arange(5)), batch_size=2)
    >>> [batch.tolist() for batch in loader], len(loader)
    ([[0, 1], [2, 3], [4]], 3)
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        workers: int = 0,
        sampler: Any = None,
        batch_sampler: Any = None,
        collate: Collate | None = None,
        seed: int = 0,
        on_bad_sample: str = "stop",
        bad_samples: int = 10,
        retries: int = 3,
        timeout: float = 300.0,
        restarts: int = 0,
        start_method: str | None = None,
        device: Any = None,
        shard: tuple[int, int] = (0, 1),
        parts: int = 0,
        limit: int | None = None,
        at: str = "",
    ) -> None:
        self.dataset, self.batch_size, self.seed, self.at = dataset, batch_size, seed, at
        self.device, self.bad_samples, self.bad, self.limit = device, bad_samples, 0, limit
        #: Read a checkpoint's position although the data have changed since.
        self.allow_change = False
        self._require(batch_size > 0, f"batch_size is {batch_size}; a batch needs at least one sample")
        self._require(workers >= 0, f"workers is {workers}; it cannot be negative")
        self._require(workers <= MOST_WORKERS, f"workers is {workers}; a loader has at most {MOST_WORKERS}")
        self._require(sampler is None or not shuffle, "sampler and shuffle contradict each other; give one of them")
        self.stream = is_stream(dataset)
        #: Which of how many shares of every batch is this process's, and what the last one weighed.
        self.shard, self.parts, self.weight = shard, parts, 1.0
        shares, who = shard[1] * (parts or 1), "virtual ranks" if parts else "processes"
        self._require(
            batch_size >= shares or batch_sampler is not None,
            f"a batch of {batch_size} cannot be shared among {shares} {who}; batch_size is that of all together",
        )
        self._require(
            not parts or not self.stream, "a stream is read by every process: parallel.virtual_ranks needs a dataset"
        )
        self._make: Callable[[Task], Fetched]
        if self.stream:
            self._source = self._unordered(shuffle or sampler is not None)
            self._make = StreamFetcher(
                dataset, batch_size=batch_size, drop_last=drop_last, collate=collate, seed=seed, shard=shard
            )
        else:
            self._source = self._ordered(sampler, batch_sampler, shuffle=shuffle, drop_last=drop_last)
            if shard[1] > 1 or parts:
                self._require_known_order(sampler if batch_sampler is None else batch_sampler)
                self._source = Shared(self._source, shard, parts or 1)
            words: dict[str, Any] = {
                "collate": collate,
                "seed": seed,
                "on_bad_sample": on_bad_sample,
                "retries": retries,
            }
            self._make = Fetcher(dataset, **words)
            self._fetcher_of: Callable[[Any], Fetcher] = partial(Fetcher, **words)
        # A stream is read by one worker, which cannot be replaced: only so is its order the same with any number.
        self.workers, restarts = (min(workers, 1), 0) if self.stream else (workers, restarts)
        self._new_pool = partial(Pool, deadline=timeout, restarts=restarts, start_method=start_method)
        self._pool: Pool | None = None
        self.epoch = self._batch = self._start = 0
        #: What the last batch was made of: epoch, batch, indices.
        self.task: Task | None = None
        #: Its slowest sample and the seconds that took, where a worker has made it.
        self.slowest: tuple[Any, float] | None = None
        self._ahead: Iterator[Task] = iter(())
        self._stream_state: Any = None

    def _unordered(self, asked_for_order: bool) -> Source:
        self._require(
            hasattr(self.dataset, "__iter__"), f"{type(self.dataset).__name__} has no __getitem__ or __iter__"
        )
        self._require(not asked_for_order, "a stream comes in its own order; drop shuffle and sampler")
        return Streamed()

    def _ordered(self, sampler: Any, batch_sampler: Any, *, shuffle: bool, drop_last: bool) -> Source:
        if batch_sampler is not None:
            return SampledBatches(batch_sampler, self.seed)
        if sampler is not None:
            return Sampled(sampler, self.batch_size, drop_last, self.seed)
        has_length = hasattr(self.dataset, "__len__")
        self._require(
            has_length, f"the dataset {type(self.dataset).__name__} has no __len__; a stream has __iter__ instead"
        )
        size = self._size()
        self._require(size > 0, f"the dataset {type(self.dataset).__name__} is empty")
        if shuffle and size < self.batch_size:
            _log.warning(
                "%s has %d samples, fewer than one batch of %d", type(self.dataset).__name__, size, self.batch_size
            )
        source = Indexed(size, self.batch_size, shuffle, drop_last, self.seed)
        self._require(
            len(source) > 0, f"drop_last leaves no batch: {size} samples do not fill one batch of {self.batch_size}"
        )
        return source

    def _size(self) -> int:
        """Return the number of samples; refuse a ``__len__`` that gives none."""
        try:
            return len(self.dataset)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{who(self.dataset, '__len__')} gives no number of samples: {error}", at=self.at
            ) from error

    def _require_known_order(self, sampler: Any) -> None:
        """Require an order that follows from seed and epoch: every rank draws all of it and takes its share."""
        self._require(
            sampler is None or hasattr(sampler, "__len__"),
            f"the sampler {type(sampler).__name__} has no length, so its order cannot be the same in all processes",
        )

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise ConfigError(message, at=self.at)

    # -- iterating -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the batches of an epoch; raise TypeError for a stream."""
        return len(self._source) if self.limit is None else min(self.limit, len(self._source))

    def __iter__(self) -> Iterator[Any]:
        start, state = self._start, self._stream_state
        # A restored position is for one iteration; the next begins at its first batch.
        self._start, self._stream_state, self._batch = 0, None, start
        for fetched in self._results(self._tasks(start, state)):
            # Counts what is handed out, not what workers or the device have ahead.
            self._batch += 1
            self.task = next(self._ahead)
            self._stream_state, self.weight, self.slowest = fetched.state, fetched.weight, fetched.slowest
            yield fetched.batch
        self._require_a_batch()
        self.epoch += 1
        self._batch, self._stream_state = 0, None

    def _joined(self, results: Iterator[Fetched]) -> Iterator[Fetched]:
        """Yield batches of several parts."""
        while parts := list(islice(results, self.parts)):
            for _ in parts[1:]:
                next(self._ahead)
            yield Fetched(Parts([part.batch for part in parts], [part.weight for part in parts]))

    def _require_a_batch(self) -> None:
        """Refuse a stream that yields nothing: the run would end at once, as if it were done."""
        if self.stream and self._batch == 0:
            raise DataError(f"the dataset {type(self.dataset).__name__} gave no batch in epoch {self.epoch + 1}")

    def _tasks(self, start: int, state: Any) -> Iterator[Task]:
        tasks = self._source.tasks(self.epoch, start, state)
        tasks = tasks if self.limit is None else islice(tasks, max(0, self.limit - start) * (self.parts or 1))
        # Workers and the device are ahead of what is handed out: each task waits here for its batch.
        tasks, self._ahead = tee(tasks)
        return tasks

    def _results(self, tasks: Iterator[Task]) -> Iterator[Fetched]:
        results = self._checked(tasks)
        results = results if self.device is None else ahead(results, self._moved)
        return self._joined(results) if self.parts else results

    def _checked(self, tasks: Iterator[Task]) -> Iterator[Fetched]:
        for fetched in self._made(tasks):
            if fetched.bad or fetched.failure:
                self._count(fetched)
            if fetched.end:
                return
            yield fetched

    def _made(self, tasks: Iterator[Task]) -> Iterable[Fetched]:
        if not self.workers:
            return map(self._make, tasks)
        self._pool = self._pool or self._new_pool(self._make, self.workers)
        return self._pool.run(tasks)

    def _count(self, fetched: Fetched) -> None:
        """Stop for what cannot be had, or for too much of it; otherwise say what was left out."""
        if fetched.mistake:
            way = "__iter__" if self.stream else "__getitem__"
            text = f"{self.at}{': ' if self.at else ''}{who(self.dataset, way)} {fetched.failure}"
            raise SampleError(text) from fetched.error
        if fetched.failure:
            error = DataError(fetched.failure)
            if fetched.error is None and fetched.details:
                error.add_note(f"in a data worker:\n{fetched.details}")
            raise error from fetched.error
        self.bad += len(fetched.bad)
        for bad in fetched.bad:
            _log.warning("bad sample %s: %s", bad.index, bad.reason)
        if self.bad > self.bad_samples:
            last = fetched.bad[-1]
            raise DataError(
                f"{self.bad} bad samples, {self.bad_samples} are allowed; the last: sample {last.index}: {last.reason}"
            )

    def _moved(self, fetched: Fetched) -> Fetched:
        return replace(fetched, batch=move(fetched.batch, self.device))

    def peek(self, dataset: Any) -> Any:
        """Return the first batch of ``dataset``, a copy of this loader's, and leave the loader as it is; None for a
        stream or a sampler, which cannot be asked without moving."""
        if self.stream or not isinstance(self._source, Indexed):
            return None
        task = next(self._source.tasks(self.epoch, 0, None))
        fetched: Fetched = self._fetcher_of(dataset)(task)
        if fetched.failure:
            self._count(fetched)
        return fetched.batch if self.device is None else move(fetched.batch, self.device)

    # -- position ------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Make this epoch the next one. A position inside it, set by :meth:`load_state_dict`, is kept."""
        if epoch != self.epoch:
            self.epoch, self._batch, self._start, self._stream_state = epoch, 0, 0, None

    def rewind(self) -> None:
        """Forget a position inside the epoch: the next iteration begins at its first batch."""
        self._batch, self._start, self._stream_state = 0, 0, None

    def loading(self) -> Any:
        """Return the sample that this process loads at the moment, for another thread; None if that is not known."""
        make = self._make
        return make.loading() if isinstance(make, Fetcher) and not self.workers else None

    def sample_ids(self) -> list[Any]:
        """Return the samples of the last batch, for messages; an empty list for a stream."""
        task = next(self._source.tasks(self.epoch, max(0, self._batch - 1)), None)
        return [] if self.stream or task is None else list(getattr(task.indices, "tolist", lambda: task.indices)())

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the number of batches that it has yielded, and the dataset's fingerprint."""
        state: dict[str, Any] = {"epoch": self.epoch, "batch": self._batch, "seed": self.seed}
        if self.stream:
            state["stream"] = self._stream_state
        else:
            state["samples"] = len(self.dataset) if hasattr(self.dataset, "__len__") else None
        if self.fingerprint:
            state["fingerprint"] = self.fingerprint
        return state | ({"fields": dict(self._fields)} if set(self._fields) - {""} else {})

    @cached_property
    def fingerprint(self) -> str:
        """The mark of the data as they were when it was first asked for, which a run does before its first step."""
        return mark_of(self._fields)

    @cached_property
    def _fields(self) -> dict[str, str]:
        return fingerprints_of(self.dataset)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Start the next iteration at the position of ``state``."""
        samples = state.get("samples")
        if samples is not None and not self.allow_change and samples != len(self.dataset):
            raise ConfigError(
                f"the dataset has {len(self.dataset)} samples, the checkpoint was made with {samples}",
                at=self.at,
                hint="--allow-change data accepts this",
            )
        before, now = state.get("fingerprint", ""), self.fingerprint
        if before and now != before and not self.allow_change:
            fields, old = self._fields, state.get("fields", {})
            changed = [name for name in {**old, **fields} if old.get(name) != fields.get(name)] if old else []
            named = f": {', '.join(map(printable, changed[:5]))} changed" if changed else ""
            raise ConfigError(
                f"the dataset is another one than the checkpoint was made with{named}; its fingerprint is "
                f"{now or 'none'}, not {before}",
                at=self.at,
                hint="--allow-change data accepts this",
            )
        self.epoch = state["epoch"]
        self._batch = self._start = state["batch"]
        self._stream_state = state.get("stream")

    def close(self) -> None:
        """Stop the workers. They start again if the loader is iterated again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
