"""Joins several datasets into one: one after the other, or side by side."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch

from etude.data.fingerprint import fingerprints_of, mark_of
from etude.errors import ConfigError


class Concat:
    """The samples of all ``datasets``, one dataset after the other. The sampler ``Mixture`` draws them by weights."""

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = _required(list(datasets), "Concat")
        self.lengths = [len(dataset) for dataset in self.datasets]
        self._ends = list(accumulate(self.lengths))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        number, within = self._place(index)
        return self.datasets[number][within]

    def origin(self, index: int) -> str:
        """Return which dataset a sample is from, and its place there."""
        number, within = self._place(index)
        dataset = self.datasets[number]
        own = getattr(dataset, "origin", None)
        return str(own(within)) if own is not None else f"sample {within} of {type(dataset).__name__} {number}"

    def fingerprint(self) -> str:
        return _fingerprint(self.datasets)

    def _place(self, index: int) -> tuple[int, int]:
        number = bisect_right(self._ends, index)
        return number, index - (self._ends[number - 1] if number else 0)


class Zip:
    """A sample of every dataset at once: ``{"labelled": (x, y), "unlabelled": z}``.

    An epoch is as long as the longest dataset; with each of its samples comes one of every other, drawn at random.
    """

    def __init__(self, datasets: Mapping[str, Any]) -> None:
        if not isinstance(datasets, Mapping):
            raise ConfigError("Zip: `datasets` maps a name to each dataset")
        self.datasets = dict(datasets)
        _required(list(self.datasets.values()), "Zip")
        self._longest = max(self.datasets, key=lambda name: len(self.datasets[name]))

    def __len__(self) -> int:
        return len(self.datasets[self._longest])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            name: dataset[index if name == self._longest else int(torch.randint(len(dataset), ()))]
            for name, dataset in self.datasets.items()
        }

    def fingerprint(self) -> str:
        return _fingerprint(list(self.datasets.values()))


class Fold:
    """One of the ``folds`` parts of a dataset (``held_out``), or all but this one. The parts are drawn with ``seed``.

    ``etude train --folds 5`` trains five runs, each with another part held out.
    """

    def __init__(self, dataset: Any, folds: int, fold: int, held_out: bool = False, seed: int = 0) -> None:
        (self.dataset,) = _required([dataset], "Fold")
        if not 0 <= fold < folds or folds < 2:
            raise ConfigError(f"Fold: fold is {fold} of {folds}; the first of at least two is 0")
        if len(dataset) < folds:
            raise ConfigError(f"Fold: {len(dataset)} samples cannot be cut into {folds} parts")
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()
        begin, end = (len(order) * number // folds for number in (fold, fold + 1))
        training = sorted(order[:begin] + order[end:])
        self.indices = sorted(order[begin:end]) if held_out else training
        fit = getattr(dataset, "fit", None)
        if fit is not None:  # what is learnt from data is learnt from the training part
            fit(training)
        self.classes = getattr(dataset, "classes", None)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def origin(self, index: int) -> str:
        """Return where a sample is from."""
        own = getattr(self.dataset, "origin", None)
        return str(own(self.indices[index])) if own is not None else f"sample {self.indices[index]}"

    def fingerprint(self) -> str:
        return mark_of({"data": mark_of(fingerprints_of(self.dataset)), "indices": repr(self.indices)})


def _required(datasets: list[Any], who: str) -> list[Any]:
    if not datasets:
        raise ConfigError(f"{who}: there is no dataset")
    for dataset in datasets:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise ConfigError(f"{who}: {type(dataset).__name__} is a stream; these have to have a length")
    return datasets


def _fingerprint(datasets: Sequence[Any]) -> str:
    return mark_of({str(number): mark_of(fingerprints_of(one)) for number, one in enumerate(datasets)})
