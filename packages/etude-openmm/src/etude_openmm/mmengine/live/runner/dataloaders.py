"""Builds a dataloader from its config."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import DataLoader, Dataset

from etude_openmm.mmengine.live import user_errors
from etude_openmm.mmengine.live.collate import function_of
from etude_openmm.mmengine.live.dist.utils import get_rank, get_world_size
from etude_openmm.shared.config.dict_v2 import ConfigDict
from etude_openmm.shared.live.processes import worker_init_fn
from etude_openmm.shared.registries.root import DATA_SAMPLERS, DATASETS


class _SlicedDataset(Dataset[Any]):
    """Holds at most the first ``length`` samples of a dataset. All other attributes come from the dataset."""

    def __init__(self, dataset: Any, length: int) -> None:
        self._dataset = dataset
        self._length = min(length, len(dataset)) if hasattr(dataset, "__len__") else length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_dataset":  # asked for by pickle, before there is a dataset
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    def __len__(self) -> int:
        return self._length


def build_dataloader(
    dataloader: DataLoader[Any] | dict[str, Any], seed: int | None = None, diff_rank_seed: bool = False
) -> DataLoader[Any]:
    """Build a ``DataLoader``. Its dataset, samplers, ``collate_fn`` and ``worker_init_fn`` may be configs or objects.

    All other keys are arguments of torch's ``DataLoader``.
    """
    if isinstance(dataloader, DataLoader):
        return dataloader
    options = dict(dataloader)
    dataset = _dataset(options)
    # A plain dict must have a sampler. ``ConfigDict.pop`` gives None for a missing key, as in MMEngine: without a
    # sampler the samples come in the order of the dataset.
    lacking = (None,) if isinstance(dataloader, ConfigDict) else ()
    sampler = options.pop("sampler", *lacking)
    if isinstance(sampler, dict):
        known = {"dataset": dataset, "seed": None if diff_rank_seed else seed}
        sampler = DATA_SAMPLERS.build(sampler, default_args=known)
    batch_sampler = options.pop("batch_sampler", None)
    if isinstance(batch_sampler, dict):
        known = {"sampler": sampler, "batch_size": options.pop("batch_size", *lacking)}
        batch_sampler = DATA_SAMPLERS.build(batch_sampler, default_args=known)
    return DataLoader(
        dataset=dataset,
        sampler=sampler if batch_sampler is None else None,
        batch_sampler=batch_sampler,
        worker_init_fn=_worker_init(options, seed),
        collate_fn=_collate(options.pop("collate_fn", {"type": "pseudo_collate"})),
        **options,
    )


def _dataset(options: dict[str, Any]) -> Any:
    dataset = options.pop("dataset")
    if isinstance(dataset, dict):
        name = dataset.get("type")
        try:
            dataset = DATASETS.build(dataset)
            if hasattr(dataset, "full_init"):
                dataset.full_init()
        except FileNotFoundError as error:
            user_errors.of_missing_data(error, name)
            raise
    batches = options.pop("num_batch_per_epoch", None)
    if batches is not None:
        return _SlicedDataset(dataset, batches * _batch_size(options) * get_world_size())
    return dataset


def _batch_size(options: dict[str, Any]) -> int:
    if "batch_size" in options:
        return int(options["batch_size"])
    sampler = options["batch_sampler"]
    size = sampler["batch_size"] if isinstance(sampler, dict) else sampler.batch_size
    return int(size)


def _get_batch_size(dataloader: dict[str, Any] | Any) -> int:
    """Return the size of the batches of a dataloader, or of the config of one."""
    if isinstance(dataloader, dict):
        return _batch_size(dict(dataloader))
    return int(dataloader.batch_sampler.batch_size)


def _worker_init(options: dict[str, Any], seed: int | None) -> Any:
    silent = options.pop("disable_subprocess_warning", False)
    assert isinstance(silent, bool), f"disable_subprocess_warning should be a bool, but got {type(silent)}"
    given = options.pop("worker_init_fn", None)
    if given is None:
        if seed is None:
            return None
        workers = options.get("num_workers", 0)
        return partial(
            worker_init_fn, num_workers=workers, rank=get_rank(), seed=seed, disable_subprocess_warning=silent
        )
    return function_of(given, "worker_init_fn")


def _collate(given: Any) -> Any:
    if not isinstance(given, dict) and not callable(given):
        raise TypeError(f"collate_fn should be a dict or callable object, but got {given!r}")
    return function_of(given, "collate_fn")
