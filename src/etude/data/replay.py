"""A loader of another make, with a position in its epoch: torch's own, a list of batches, anything that iterates."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch


class Replay:
    """Iterates ``loader`` and remembers how: from which state of the generators, and how many batches came.

    Such a loader draws its order from the generators of the process when it is iterated. After a resume in mid-epoch
    it is iterated from the same state, what was handed out before is read and dropped, and the generators are put back;
    so the rest of the epoch is the same, at the price of reading its beginning again.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self._began: dict[str, Any] = {}
        self._batch = self._skip = self._epoch = 0

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        skip, self._skip, self._batch = self._skip, 0, 0
        now = generators()
        if skip:
            restore(self._began)
        else:
            self._began = now
        batches = iter(self.loader)
        if skip:
            for _ in islice(batches, skip):
                self._batch += 1
            restore(now)
        for batch in batches:
            self._batch += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; a position inside another one is forgotten."""
        if epoch != self._epoch:
            self._epoch, self._skip = epoch, 0
        inner = getattr(self.loader, "set_epoch", None)
        if inner is not None:
            inner(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Which epoch, where it began and how many of its batches were handed out."""
        return {"epoch": self._epoch, "began": self._began, "batch": self._batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._began, self._skip = int(state["epoch"]), dict(state["began"]), int(state["batch"])

    def rewind(self) -> None:
        """Begin the next iteration at its start."""
        self._skip = 0


def generators() -> dict[str, Any]:
    """The states of Python's, numpy's and torch's generators, as plain data."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "numpy": {"name": name, "keys": keys, "position": position, "has_gauss": has_gauss, "cached": cached},
        "torch": torch.get_rng_state(),
    }


def restore(state: Mapping[str, Any]) -> None:
    """Put the generators into ``state``."""
    python, legacy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state((legacy["name"], legacy["keys"], legacy["position"], legacy["has_gauss"], legacy["cached"]))
    torch.set_rng_state(state["torch"])
