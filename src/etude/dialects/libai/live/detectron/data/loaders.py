"""detectron2's loaders around data of one's own: lists of dicts, a mapper, batches that stay lists."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from etude.data.seeds import kept_generators, mix, seed_process
from etude.dialects.libai.live.detectron.data.samplers import InferenceSampler, TrainingSampler, own_batch_size
from etude.dialects.libai.live.detectron.default import seed_all_rng

Collate = Callable[[list[Any]], Any]
_GIVE_UP_AFTER = 3


#: What a list becomes when it is to be serialized; None: it stays, and every sample is handed out as a copy.
_serialize_method: Callable[[list[Any]], Any] | None = None


@contextmanager
def set_default_dataset_from_list_serialize_method(new: Callable[[list[Any]], Any]) -> Iterator[None]:
    """Within this block, ``DatasetFromList(…, serialize=True)`` holds its list as ``new`` makes it."""
    global _serialize_method
    before, _serialize_method = _serialize_method, new
    try:
        yield
    finally:
        _serialize_method = before


class DatasetFromList(Dataset[Any]):
    """A list as a data set; ``copy`` hands out copies, so that a mapper may change what it gets.

    ``serialize`` may be a function that makes something else of the list, with a length and items.
    """

    def __init__(self, lst: list[Any], copy: bool = True, serialize: bool | Callable[[list[Any]], Any] = True) -> None:
        method = serialize if callable(serialize) else _serialize_method if serialize else None
        self._lst = lst if method is None else method(lst)
        self._copy = copy or (bool(serialize) and method is None)

    def __len__(self) -> int:
        return len(self._lst)

    def __getitem__(self, index: int) -> Any:
        return copy.deepcopy(self._lst[index]) if self._copy else self._lst[index]


class PicklableWrapper:
    """A function that can be sent to another process also when it has no name there, as a lambda."""

    def __init__(self, obj: Any) -> None:
        self._obj: Any = obj._obj if isinstance(obj, PicklableWrapper) else obj

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickle.dumps(self._obj)
        except Exception as error:
            try:
                import cloudpickle  # type: ignore[import-untyped]
            except ModuleNotFoundError:
                raise error from None
            return _unwrapped, (cloudpickle.dumps(self._obj),)
        return PicklableWrapper, (self._obj,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._obj(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_obj":
            raise AttributeError(name)
        return getattr(self._obj, name)


def _unwrapped(content: bytes) -> PicklableWrapper:
    return PicklableWrapper(pickle.loads(content))


class MapDataset(Dataset[Any]):
    """A function over the samples of a data set. Where it returns None another sample is taken instead."""

    def __new__(cls, dataset: Any, map_func: Callable[[Any], Any]) -> Any:
        if isinstance(dataset, IterableDataset):
            return _MapIterable(dataset, map_func)
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[Any, Any]:
        return self._dataset, self._map_func

    def __init__(self, dataset: Any, map_func: Callable[[Any], Any]) -> None:
        self._dataset, self._map_func = dataset, PicklableWrapper(map_func)
        self._rng = random.Random(42)
        self._fallback_candidates = set(range(len(dataset)))

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        current = int(index)
        for _ in range(_GIVE_UP_AFTER):
            made = self._map_func(self._dataset[current])
            if made is not None:
                self._fallback_candidates.add(current)
                return made
            self._fallback_candidates.discard(current)
            current = self._rng.choice(sorted(self._fallback_candidates) or [current])
        raise ValueError(f"the mapper returned None for sample {index} and for {_GIVE_UP_AFTER - 1} others")


class _MapIterable(IterableDataset[Any]):
    def __init__(self, dataset: Any, map_func: Callable[[Any], Any]) -> None:
        self._dataset, self._map_func = dataset, PicklableWrapper(map_func)

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        return (made for item in self._dataset if (made := self._map_func(item)) is not None)


class ToIterableDataset(IterableDataset[Any]):
    """A data set in the order of a sampler, as a stream; workers take turns by ``shard_chunk_size`` samples."""

    def __init__(self, dataset: Any, sampler: Any, shard_sampler: bool = True, shard_chunk_size: int = 1) -> None:
        assert not isinstance(dataset, IterableDataset), dataset
        self.dataset, self.sampler = dataset, sampler
        self.shard_sampler, self.shard_chunk_size = shard_sampler, shard_chunk_size

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        order: Iterator[Any] = iter(self.sampler)
        if self.shard_sampler and worker is not None and worker.num_workers > 1:
            turn = (number // self.shard_chunk_size % worker.num_workers == worker.id for number in itertools.count())
            order = itertools.compress(order, turn)
        for index in order:
            yield self.dataset[index]

    def __len__(self) -> int:
        return len(self.sampler)


class AspectRatioGroupedDataset(IterableDataset[Any]):
    """Batches of upright or of lying images; each image is a dict with ``width`` and ``height``."""

    def __init__(self, dataset: Iterable[Any], batch_size: int) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self._buckets: list[list[Any]] = [[], []]

    def __iter__(self) -> Iterator[list[Any]]:
        for sample in self.dataset:
            bucket = self._buckets[0 if sample["width"] > sample["height"] else 1]
            bucket.append(sample)
            if len(bucket) == self.batch_size:
                full = bucket[:]
                del bucket[:]
                yield full

    def iterate_from(self, state: Mapping[str, Any] | None, seed: int) -> Iterator[Any] | None:
        """An iterator that knows its position and may begin at one; None where the samples come as a stream."""
        inner = self.dataset
        if not isinstance(inner, DataLoader) or isinstance(inner.dataset, IterableDataset) or inner.batch_sampler:
            return None
        return _Grouping(inner, self.batch_size, seed, state or {"drawn": 0, "waiting": [[], []]})


class _Grouping:
    """Groups the samples of a loader; a sample that waits in a bucket is known by its number in the order."""

    def __init__(self, loader: Any, size: int, seed: int, state: Mapping[str, Any]) -> None:
        self._size, self._seed = size, seed
        self._drawn, numbers = int(state["drawn"]), state["waiting"]
        order = list(itertools.islice(loader.sampler, self._drawn)) if self._drawn else []
        self._buckets: list[list[tuple[int, Any]]] = [
            [(number, self._load(loader.dataset, order[number], number)) for number in bucket] for bucket in numbers
        ]
        self._samples = self._rest(loader)

    def _rest(self, loader: Any) -> Iterator[Any]:
        order = itertools.islice(loader.sampler, self._drawn, None)
        seeds = (mix(self._seed, number) for number in itertools.count(self._drawn))
        rest = copy.copy(loader)
        object.__setattr__(rest, "sampler", zip(order, seeds, strict=False))
        object.__setattr__(rest, "dataset", _Seeded(loader.dataset))
        object.__setattr__(rest, "_iterator", None)
        return iter(rest)

    def _load(self, dataset: Any, index: Any, number: int) -> Any:
        return _Seeded(dataset)[index, mix(self._seed, number)]

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> list[Any]:
        while True:
            sample = next(self._samples)
            bucket = self._buckets[0 if sample["width"] > sample["height"] else 1]
            bucket.append((self._drawn, sample))
            self._drawn += 1
            if len(bucket) == self._size:
                full = [sample for _, sample in bucket]
                del bucket[:]
                return full

    def _shutdown_workers(self) -> None:
        stop = getattr(self._samples, "_shutdown_workers", None)
        if stop is not None:
            stop()

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self._drawn, "waiting": [[number for number, _ in bucket] for bucket in self._buckets]}


class _Seeded(Dataset[Any]):
    """A data set whose samples are asked for with a seed, so that one can be had again as it was."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, asked: tuple[Any, int]) -> Any:
        index, seed = asked
        with kept_generators():
            seed_process(seed)
            return self.dataset[index]


# -- loaders -----------------------------------------------------------------------------------------------------------


def trivial_batch_collator(batch: list[Any]) -> list[Any]:
    """A batch stays the list of its samples."""
    return batch


def worker_init_reset_seed(worker_id: int) -> None:
    """Seed numpy's and Python's generators of a worker, too."""
    seed_all_rng(torch.initial_seed() % 2**31 + worker_id)


def build_batch_data_loader(
    dataset: Any,
    sampler: Any,
    total_batch_size: int,
    *,
    aspect_ratio_grouping: bool = False,
    num_workers: int = 0,
    collate_fn: Collate | None = None,
    drop_last: bool = True,
    single_gpu_batch_size: int | None = None,
    **kwargs: Any,
) -> Any:
    """Batches for this process: ``total_batch_size`` is shared by all."""
    size = own_batch_size(total_batch_size, single_gpu_batch_size)
    options = {"num_workers": num_workers, "worker_init_fn": worker_init_reset_seed, **kwargs}
    if isinstance(dataset, IterableDataset):
        assert sampler is None, "sampler must be None if dataset is IterableDataset"
    if aspect_ratio_grouping:
        assert drop_last, "Aspect ratio grouping will drop incomplete batches."
        order = {} if sampler is None else {"sampler": sampler}
        samples: DataLoader[Any] = DataLoader(dataset, batch_size=None, collate_fn=_as_it_is, **order, **options)
        grouped = AspectRatioGroupedDataset(samples, size)
        return grouped if collate_fn is None else _MapIterable(grouped, collate_fn)
    made: dict[str, Any] = {"batch_sampler": BatchSampler(sampler, size, drop_last)} if sampler is not None else {}
    made = made or {"batch_size": size, "drop_last": drop_last}
    return DataLoader(dataset, collate_fn=collate_fn or trivial_batch_collator, **made, **options)


def _as_it_is(sample: Any) -> Any:
    return sample


def build_detection_train_loader(
    dataset: Any,
    *,
    mapper: Callable[[Any], Any] | None,
    sampler: Any = None,
    total_batch_size: int,
    aspect_ratio_grouping: bool = True,
    num_workers: int = 0,
    collate_fn: Collate | None = None,
    **kwargs: Any,
) -> Any:
    """Endless batches of a list of dicts (or a data set), each sample through ``mapper``."""
    dataset = _data_set(dataset, mapper)
    if not isinstance(dataset, IterableDataset) and sampler is None:
        sampler = TrainingSampler(len(dataset))
    return build_batch_data_loader(
        dataset,
        sampler,
        total_batch_size,
        aspect_ratio_grouping=aspect_ratio_grouping,
        num_workers=num_workers,
        collate_fn=collate_fn,
        **kwargs,
    )


def build_detection_test_loader(
    dataset: Any,
    *,
    mapper: Callable[[Any], Any] | None,
    sampler: Any = None,
    batch_size: int = 1,
    num_workers: int = 0,
    collate_fn: Collate | None = None,
) -> DataLoader[Any]:
    """Every sample once, in batches of ``batch_size``."""
    dataset = _data_set(dataset, mapper)
    if not isinstance(dataset, IterableDataset) and sampler is None:
        sampler = InferenceSampler(len(dataset))
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        drop_last=False,
        num_workers=num_workers,
        collate_fn=collate_fn or trivial_batch_collator,
    )


def _data_set(dataset: Any, mapper: Callable[[Any], Any] | None) -> Any:
    made = DatasetFromList(dataset, copy=False) if isinstance(dataset, list) else dataset
    return made if mapper is None else MapDataset(made, mapper)
