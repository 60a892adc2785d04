"""LiBai's ``build_*_loader`` functions: datasets, LiBai's samplers and a torch ``DataLoader``."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from etude_libai.lazy.extra import is_list_config
from etude_libai.lazy.instantiate import instantiate
from etude_libai.lazy.load import LazyCall
from etude_libai.lazy.targets import locate
from etude_libai.live import topology
from etude_libai.live.data.samplers import CyclicSampler, SingleRoundSampler
from etude_libai.live.data.structures import Instance

Collate = Callable[[Sequence[Any]], Any]


def build_nlp_train_val_test_loader(
    dataset: Any,
    splits: Any,
    weights: Any,
    train_val_test_num_samples: Any,
    train_batch_size: int,
    test_batch_size: int,
    train_sampler: Any = None,
    test_sampler: Any = None,
    num_workers: int = 4,
    consumed_samples: int = 0,
    seed: int = 0,
    collate_fn: Collate | None = None,
    dataset_mixer: Callable[..., Any] = ConcatDataset,
) -> tuple[DataLoader[Any], DataLoader[Any], DataLoader[Any]]:
    """Build loaders for training, validation and test. Each dataset is split in the proportion of its ``splits``.

    ``weights`` has no effect, as in LiBai. A dataset over indexed documents (``indexed_dataset``) is built three times,
    each time over other documents; any other one is built once, and its samples are divided.
    """
    counts = list(train_val_test_num_samples) if train_val_test_num_samples is not None else [None] * 3
    cut = [
        _by_documents(item, split, counts)
        if not isinstance(item, torch.utils.data.Dataset) and "indexed_dataset" in item
        else _by_samples(instantiate(item), split)
        for item, split in zip(as_list(dataset), splits, strict=True)
    ]
    mixed = [dataset_mixer(list(parts)) if len(parts) > 1 else parts[0] for parts in zip(*cut, strict=True)]
    train, _, _ = build_nlp_train_loader(
        mixed[0], train_batch_size, None, train_sampler, num_workers, consumed_samples, seed, collate_fn
    )
    rest = [
        build_nlp_test_loader(part, test_batch_size, test_sampler, num_workers, seed, collate_fn) for part in mixed[1:]
    ]
    return train, rest[0], rest[1]


def build_nlp_train_loader(
    dataset: Any,
    train_batch_size: int,
    test_batch_size: int | None = None,
    sampler: Any = None,
    num_workers: int = 4,
    consumed_samples: int = 0,
    seed: int = 0,
    collate_fn: Collate | None = None,
    dataset_mixer: Callable[..., Any] = ConcatDataset,
    **kwargs: Any,
) -> tuple[DataLoader[Any], None, None]:
    """Return ``(loader, None, None)``: there is no validation and test part."""
    sampler = _lazy_sampler(sampler, CyclicSampler, shuffle=True)
    made = one_dataset(dataset, dataset_mixer)
    drawn = _sampler(sampler, made, train_batch_size, seed, consumed_samples=consumed_samples)
    return _loader(made, drawn, num_workers, collate_fn, seed, **kwargs), None, None


def build_nlp_test_loader(
    dataset: Any,
    test_batch_size: int,
    sampler: Any = None,
    num_workers: int = 4,
    seed: int = 0,
    collate_fn: Collate | None = None,
) -> DataLoader[Any]:
    """Return a loader that gives every sample once, in order."""
    sampler = _lazy_sampler(sampler, SingleRoundSampler, shuffle=False, drop_last=False)
    made = instantiate(dataset)
    return _loader(made, _sampler(sampler, made, test_batch_size, seed), num_workers, collate_fn, seed)


def build_image_train_loader(
    dataset: Any,
    train_batch_size: int,
    test_batch_size: int | None = None,
    sampler: Any = None,
    num_workers: int = 4,
    consumed_samples: int = 0,
    seed: int = 0,
    collate_fn: Collate | None = None,
    dataset_mixer: Callable[..., Any] = ConcatDataset,
    mixup_func: Any = None,
    **kwargs: Any,
) -> tuple[DataLoader[Any], None, None]:
    """Return ``(loader, None, None)``. ``mixup_func`` becomes an attribute of the loader, for ``get_batch``."""
    loader, _, _ = build_nlp_train_loader(
        dataset, train_batch_size, test_batch_size, sampler, num_workers, consumed_samples, seed, collate_fn,
        dataset_mixer, **kwargs,
    )  # fmt: skip
    loader.mixup_func = instantiate(mixup_func)
    return loader, None, None


def build_image_test_loader(
    dataset: Any,
    test_batch_size: int,
    sampler: Any = None,
    num_workers: int = 4,
    seed: int = 0,
    collate_fn: Collate | None = None,
    **kwargs: Any,
) -> DataLoader[Any]:
    """Return a loader that gives every sample once, shuffled by default as in LiBai."""
    sampler = _lazy_sampler(sampler, SingleRoundSampler, shuffle=True, drop_last=False)
    made = instantiate(dataset)
    return _loader(made, _sampler(sampler, made, test_batch_size, seed), num_workers, collate_fn, seed, **kwargs)


def trivial_batch_collator(batch: Sequence[Any]) -> Any:
    """Stack instances into one, or collate anything else as torch does."""
    if isinstance(batch[0], Instance):
        return Instance.stack(batch)
    return torch.utils.data.default_collate(list(batch))


# -- pieces ------------------------------------------------------------------------------------------------------------


def _lazy_sampler(given: Any, default: type[Any], **options: Any) -> Any:
    return LazyCall(default)(**options) if given is None else given


def _sampler(sampler: Any, dataset: Any, batch_size: int, seed: int, **extra: Any) -> Any:
    """Build a lazy sampler with dataset, batch size, rank and seed. A sampler that is built already is returned."""
    if "_target_" not in sampler:
        return sampler
    arguments = {key: sampler[key] for key in sampler if key != "_target_"}
    arguments |= {
        "dataset": dataset,
        "micro_batch_size": batch_size,
        "data_parallel_rank": topology.get_data_parallel_rank(),
        "data_parallel_size": topology.get_data_parallel_size(),
        "seed": seed,
    }
    target = sampler["_target_"]
    return (locate(target) if isinstance(target, str) else target)(**arguments, **extra)


def one_dataset(dataset: Any, mixer: Callable[..., Any]) -> Any:
    """Return one dataset; several are combined by ``mixer``."""
    if isinstance(dataset, torch.utils.data.Dataset):
        return dataset
    listed = [instantiate(item) for item in as_list(dataset)]
    return listed[0] if len(listed) == 1 else mixer(listed)


def as_list(value: Any) -> list[Any]:
    if isinstance(value, list | tuple) or is_list_config(value):
        return [value[index] for index in range(len(value))]
    return [value]


def _by_documents(dataset: Any, shares: Sequence[float], counts: Sequence[int | None]) -> list[Any]:
    documents = instantiate(dataset.indexed_dataset)
    every, parts = documents.get_doc_idx(), []
    for (begin, end), count in zip(itertools.pairwise(_borders(len(every) - 1, shares)), counts, strict=True):
        # All parts share ``documents``. Each reads its own list of indices from it only while it is built.
        documents.set_doc_idx(every[begin : end + 1])
        dataset.indexed_dataset, dataset.max_num_samples = documents, count
        parts.append(instantiate(dataset))
        documents.set_doc_idx(every)
    return parts


def _by_samples(dataset: Any, shares: Sequence[float]) -> list[Any]:
    return [Subset(dataset, range(*pair)) for pair in itertools.pairwise(_borders(len(dataset), shares))]


def _borders(size: int, shares: Sequence[float]) -> list[int]:
    """Return the begins of three parts and the end of the last. As in LiBai, rounding shifts all but the first."""
    shares = [*shares, 0.0, 0.0][:3]
    borders = [0]
    for share in shares:
        borders.append(borders[-1] + round(share / sum(shares) * size))
    return [0, *(border - (borders[-1] - size) for border in borders[1:])]


def _loader(
    dataset: Any, sampler: Any, num_workers: int, collate_fn: Collate | None, seed: int, **kwargs: Any
) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        collate_fn=trivial_batch_collator if collate_fn is None else collate_fn,
        worker_init_fn=_seed_worker,
        generator=generator,
        **kwargs,
    )


def _seed_worker(worker_id: int) -> None:
    # numpy takes no larger seeds.
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)
