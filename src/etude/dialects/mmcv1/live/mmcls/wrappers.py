"""Datasets around datasets: joined, repeated, balanced by class, one part of k."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset as Joined
from torch.utils.data import Dataset

from etude.dialects.mmcv1.live.checks import require


class ConcatDataset(Joined[Any]):
    """Several datasets as one; ``separate_eval`` evaluates each by itself, results named ``0_…``, ``1_…``."""

    def __init__(self, datasets: Sequence[Any], separate_eval: bool = True) -> None:
        super().__init__(datasets)
        self.CLASSES, self.separate_eval = getattr(datasets[0], "CLASSES", None), separate_eval
        kinds = {type(dataset) for dataset in datasets}
        if not separate_eval and len(kinds) > 1:
            raise NotImplementedError("datasets of several types can only be evaluated separately")

    def get_cat_ids(self, idx: int) -> Any:
        number = next(i for i, end in enumerate(self.cumulative_sizes) if idx < end)
        start = self.cumulative_sizes[number - 1] if number else 0
        dataset: Any = self.datasets[number]
        return dataset.get_cat_ids(idx - start)

    def evaluate(
        self, results: Any, *args: Any, indices: Any = None, logger: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Results of all datasets one after the other, evaluated."""
        if indices is not None:
            raise NotImplementedError("a part of joined datasets cannot be evaluated")
        require(len(results) == len(self), f"there are {len(results)} results for {len(self)} samples")
        if not self.separate_eval:
            return self._evaluated_together(results, *args, logger=logger, **kwargs)
        found: dict[str, Any] = {}
        starts = [0, *self.cumulative_sizes]
        for number, dataset in enumerate(self.datasets):
            part = results[starts[number] : starts[number + 1]]
            own: Any = dataset
            values = own.evaluate(part, *args, logger=logger, **kwargs)
            found |= {f"{number}_{name}": value for name, value in values.items()}
        return found

    def _evaluated_together(self, results: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        first: Any = self.datasets[0]
        if not all(hasattr(dataset, "data_infos") for dataset in self.datasets):
            raise NotImplementedError("datasets are evaluated together by their `data_infos`, which one of them lacks")
        before = first.data_infos
        first.data_infos = [info for dataset in self.datasets for info in dataset.data_infos]  # type: ignore[attr-defined]
        try:
            return dict(first.evaluate(results, *args, **kwargs))
        finally:
            first.data_infos = before


class _Around(Dataset[Any]):
    """Some samples of a dataset, by their numbers."""

    dataset: Any
    indices: Sequence[int]

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[self.indices[idx]]

    def __len__(self) -> int:
        return len(self.indices)

    def get_cat_ids(self, idx: int) -> Any:
        return self.dataset.get_cat_ids(self.indices[idx])


class RepeatDataset(_Around):
    """A dataset ``times`` times over: fewer, longer epochs."""

    def __init__(self, dataset: Any, times: int) -> None:
        self.dataset, self.times = dataset, times
        self.CLASSES = getattr(dataset, "CLASSES", None)

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[idx % len(self.dataset)]

    def get_cat_ids(self, idx: int) -> Any:
        return self.dataset.get_cat_ids(idx % len(self.dataset))

    def __len__(self) -> int:
        return self.times * len(self.dataset)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a repeated dataset is for training: evaluate the dataset itself")


class ClassBalancedDataset(_Around):
    """Samples of classes rarer than ``oversample_thr`` come several times.

    A class that a share ``f`` of the samples has counts ``max(1, sqrt(oversample_thr / f))``, a sample as its rarest
    class, rounded up.
    """

    def __init__(self, dataset: Any, oversample_thr: float) -> None:
        self.dataset, self.oversample_thr = dataset, oversample_thr
        self.CLASSES = getattr(dataset, "CLASSES", None)
        classes = [set(dataset.get_cat_ids(idx)) for idx in range(len(dataset))]
        seen = Counter(name for names in classes for name in names)
        share = {name: count / len(dataset) for name, count in seen.items()}
        factor = {name: max(1.0, math.sqrt(oversample_thr / common)) for name, common in share.items()}
        self.indices = [
            idx for idx, names in enumerate(classes) for _ in range(math.ceil(max(factor[name] for name in names)))
        ]

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a balanced dataset is for training: evaluate the dataset itself")


class KFoldDataset(_Around):
    """The training samples of a split into ``num_splits`` parts, or with ``test_mode`` the part ``fold`` itself."""

    def __init__(
        self, dataset: Any, fold: int = 0, num_splits: int = 5, test_mode: bool = False, seed: int | None = None
    ) -> None:
        self.dataset, self.fold, self.num_splits, self.test_mode = dataset, fold, num_splits, test_mode
        self.CLASSES = getattr(dataset, "CLASSES", None)
        numbers = list(range(len(dataset)))
        if isinstance(seed, int):
            np.random.default_rng(seed).shuffle(numbers)
        start, end = len(dataset) * fold // num_splits, len(dataset) * (fold + 1) // num_splits
        self.indices = numbers[start:end] if test_mode else numbers[:start] + numbers[end:]

    def get_gt_labels(self) -> Any:
        labels = self.dataset.get_gt_labels()
        return np.array([labels[index] for index in self.indices])

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["indices"] = self.indices
        return self.dataset.evaluate(*args, **kwargs)


def wrapped(cfg: Mapping[str, Any], build: Any, default_args: Mapping[str, Any] | None) -> Any:
    """The dataset around others that ``cfg`` names, or None when it names none of these."""
    kind = cfg.get("type")
    if kind == "ConcatDataset":
        parts = [build(one, default_args) for one in cfg["datasets"]]
        return ConcatDataset(parts, separate_eval=cfg.get("separate_eval", True))
    if kind == "RepeatDataset":
        return RepeatDataset(build(cfg["dataset"], default_args), cfg["times"])
    if kind == "ClassBalancedDataset":
        return ClassBalancedDataset(build(cfg["dataset"], default_args), cfg["oversample_thr"])
    if kind == "KFoldDataset":
        rest = {key: value for key, value in cfg.items() if key not in ("type", "dataset")}
        rest.setdefault("test_mode", (default_args or {}).get("test_mode", False))
        inner = {key: value for key, value in (default_args or {}).items() if key != "test_mode"}
        return KFoldDataset(build(cfg["dataset"], inner), **rest)
    return None
