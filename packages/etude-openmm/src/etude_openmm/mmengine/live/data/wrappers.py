"""Dataset wrappers of MMEngine: concatenate, repeat, balance classes."""

from __future__ import annotations

import bisect
import copy
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset as TorchConcatDataset

from etude_openmm.mmengine.live.data.base_dataset import BaseDataset, force_full_init, initialise
from etude_openmm.shared.registries.root import DATASETS


class _Wrapper:
    """The base of all wrappers. Subclasses load the inner datasets and map ``idx`` to one of their samples."""

    _metainfo: dict[str, Any]
    _fully_initialized = False

    def _load(self) -> None:
        raise NotImplementedError

    def _source(self, idx: int) -> tuple[Any, int]:
        raise NotImplementedError

    @property
    def metainfo(self) -> dict[str, Any]:
        """Return a copy of the metainfo of the (first) inner dataset."""
        return copy.deepcopy(self._metainfo)

    def full_init(self) -> None:
        """Load the inner datasets."""
        if not self._fully_initialized:
            self._load()
            self._fully_initialized = True

    @force_full_init
    def get_data_info(self, idx: int) -> dict[str, Any]:
        dataset, number = self._source(idx)
        info: dict[str, Any] = dataset.get_data_info(number)
        return info

    def __getitem__(self, idx: int) -> Any:
        if not self._fully_initialized:
            initialise(self)
        dataset, number = self._source(idx)
        return dataset[number]

    def get_subset_(self, indices: list[int] | int) -> Any:
        raise NotImplementedError(
            f"`{type(self).__name__}` dose not support `get_subset` and `get_subset_`: take the subset of the datasets "
            "inside it"
        )

    get_subset = get_subset_


@DATASETS.register_module()
class ConcatDataset(_Wrapper, TorchConcatDataset[Any]):
    """Concatenates datasets. Their metainfo has to agree, except for ``ignore_keys``."""

    def __init__(
        self,
        datasets: Sequence[BaseDataset | dict[str, Any]],
        lazy_init: bool = False,
        ignore_keys: str | list[str] | None = None,
    ) -> None:
        self.datasets: list[Any] = [_build(dataset) for dataset in datasets]
        self.ignore_keys = _keys(ignore_keys)
        self._metainfo: dict[str, Any] = self.datasets[0].metainfo
        for number, dataset in enumerate(self.datasets[1:], 1):
            self._check(number, dataset.metainfo)
        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    def _check(self, number: int, metainfo: dict[str, Any]) -> None:
        first = self._metainfo
        for key in (first.keys() | metainfo.keys()) - set(self.ignore_keys):
            if key not in metainfo or key not in first:
                raise ValueError(f"{key} does not in the meta information of the {number}-th dataset")
            one, other = first[key], metainfo[key]
            if type(one) is not type(other):
                raise TypeError(f"The type {type(other)} of {key} in the {number}-th dataset differs: {type(one)}")
            same = np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
            if not same:
                raise ValueError(
                    f"The meta information of the {number}-th dataset does not match meta information of the first "
                    "dataset"
                )

    def _load(self) -> None:
        for dataset in self.datasets:
            dataset.full_init()
        TorchConcatDataset.__init__(self, self.datasets)  # only now: it asks for their lengths

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> tuple[int, int]:
        """Return the index of the dataset, and the index of the sample in it."""
        if idx < 0:
            if -idx > len(self):
                raise ValueError(f"absolute value of index({idx}) should not exceed dataset length({len(self)}).")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        return which, idx - (self.cumulative_sizes[which - 1] if which else 0)

    def _source(self, idx: int) -> tuple[Any, int]:
        which, number = self._get_ori_dataset_idx(idx)
        return self.datasets[which], number

    @force_full_init
    def __len__(self) -> int:
        return super().__len__()


class _Resampled(_Wrapper):
    """The base of wrappers around one dataset, in which samples may repeat. Subclasses map ``idx`` to a sample."""

    _get_ori_dataset_idx: Any

    def __init__(self, dataset: BaseDataset | dict[str, Any], lazy_init: bool) -> None:
        self.dataset: Any = _build(dataset)
        self._metainfo: dict[str, Any] = self.dataset.metainfo
        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    def _load(self) -> None:
        self.dataset.full_init()

    def _source(self, idx: int) -> tuple[Any, int]:
        return self.dataset, self._get_ori_dataset_idx(idx)


@DATASETS.register_module()
class RepeatDataset(_Resampled):
    """Repeats a dataset ``times`` times, so that a short one has longer epochs."""

    def __init__(self, dataset: BaseDataset | dict[str, Any], times: int, lazy_init: bool = False) -> None:
        self.times = times
        super().__init__(dataset, lazy_init)

    def _load(self) -> None:
        super()._load()
        self._ori_len = len(self.dataset)

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> int:
        return int(idx % self._ori_len)

    @force_full_init
    def __len__(self) -> int:
        return self.times * self._ori_len


@DATASETS.register_module()
class ClassBalancedDataset(_Resampled):
    """Repeats samples of rare classes ``ceil(max(1, sqrt(oversample_thr / frequency)))`` times.

    The frequency of a class is the share of samples that have it. A sample's rarest class counts. The dataset
    needs ``get_cat_ids(idx)``.
    """

    def __init__(self, dataset: BaseDataset | dict[str, Any], oversample_thr: float, lazy_init: bool = False) -> None:
        self.oversample_thr = oversample_thr
        super().__init__(dataset, lazy_init)

    def _load(self) -> None:
        super()._load()
        factors = self._get_repeat_factors(self.dataset, self.oversample_thr)
        self.repeat_indices = [index for index, factor in enumerate(factors) for _ in range(math.ceil(factor))]

    def _get_repeat_factors(self, dataset: Any, repeat_thr: float) -> list[float]:
        classes = [set(dataset.get_cat_ids(index)) for index in range(len(dataset))]
        seen = Counter(found for each in classes for found in each)
        factors = {found: max(1.0, math.sqrt(repeat_thr / (count / len(classes)))) for found, count in seen.items()}
        return [max((factors[found] for found in each), default=1.0) for each in classes]

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> int:
        return self.repeat_indices[idx]

    @force_full_init
    def get_cat_ids(self, idx: int) -> list[int]:
        found: list[int] = self.dataset.get_cat_ids(self._get_ori_dataset_idx(idx))
        return found

    @force_full_init
    def __len__(self) -> int:
        return len(self.repeat_indices)


def _build(dataset: Any) -> Any:
    if isinstance(dataset, dict):
        return DATASETS.build(dataset)
    if isinstance(dataset, (BaseDataset, _Wrapper)):
        return dataset
    raise TypeError(
        f"elements in datasets sequence should be config or `BaseDataset` instance, but got {type(dataset)}"
    )


def _keys(keys: str | list[str] | None) -> list[str]:
    if keys is None:
        return []
    if isinstance(keys, str):
        return [keys]
    if isinstance(keys, list):
        return keys
    raise TypeError(f"ignore_keys should be a list or str, but got {type(keys)}")
